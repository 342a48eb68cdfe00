#include <algorithm>
#include <chrono>
#include <thread>

#include "lockstep/comm/connect.h"
#include "world.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using test::own_rank;
using test::world;

class Timeout : public ::testing::TestWithParam<const char*> {};

// The last rank stays away from the second collective. The others are to name it, and to find the group dead.
TEST_P(Timeout, NamesTheRankThatDidNotCome) {
  if (world() == 1) GTEST_SKIP() << "needs two ranks";
  auto group = test::open(GetParam(), 1s);
  std::vector<at::Tensor> tensors = {at::ones({10})};
  group->allreduce(tensors)->wait();
  EXPECT_FALSE(comm::is_dead(group));
  const int absent = world() - 1;
  std::string text;
  if (own_rank() != absent) {
    text = test::error_of([&] { group->allreduce(tensors)->wait(); });
    EXPECT_NE(text.find("rank " + std::to_string(absent) + " (host "), std::string::npos) << text;
    EXPECT_NE(text.find("did not arrive, it is at collective 1"), std::string::npos) << text;
    EXPECT_EQ(text.find("rank 0 ("), std::string::npos) << "only the absent one is at fault: " << text;
    const std::string again = test::error_of([&] { group->barrier()->wait(); });
    EXPECT_NE(again.find("failed earlier"), std::string::npos) << again;
    EXPECT_TRUE(comm::is_dead(group));
    EXPECT_NE(again.find("rank " + std::to_string(absent)), std::string::npos) << again;
  }
  // whose second is over first tells the others, which may have begun theirs later
  const auto all = test::runtime().all_gather(text);
  EXPECT_TRUE(std::any_of(all.begin(), all.end(), [](const std::string& one) {
    return one.find("timed out after 1 s") != std::string::npos;
  })) << text;
}

TEST_P(Timeout, ARankThatLeftIsNamedAtOnce) {
  if (world() == 1) GTEST_SKIP() << "needs two ranks";
  auto group = test::open(GetParam(), 10min);
  const auto start = std::chrono::steady_clock::now();
  if (own_rank() == world() - 1) {
    group.reset();
  } else {
    std::vector<at::Tensor> tensors = {at::ones({10})};
    const std::string text = test::error_of([&] { group->allreduce(tensors)->wait(); });
    EXPECT_NE(text.find("left the group"), std::string::npos) << text;
    // who does not speak to the lost rank itself learns of it when its neighbours let go, as when they end
    group.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - start, 2min);
  }
  test::runtime().barrier();
}

INSTANTIATE_TEST_SUITE_P(Backends, Timeout, ::testing::Values("shared", "gloo", "mpi"),
                         [](const auto& info) { return std::string(info.param); });

TEST(Join, NamesTheRankThatDidNotCome) {
  if (world() == 1) GTEST_SKIP() << "needs two ranks";
  const int absent = world() - 1;
  if (own_rank() != absent) {
    const std::string text = test::error_of([] {
      comm::connect(test::runtime(), {.backend = "gloo", .join_timeout = std::chrono::milliseconds(500)});
    });
    EXPECT_NE(text.find("rank " + std::to_string(absent) + " did not join"), std::string::npos) << text;
    std::this_thread::sleep_for(50ms);
  }
  test::runtime().barrier();
}

}  // namespace
}  // namespace lockstep
