// TORCH_DISTRIBUTED_DEBUG=DETAIL: calls that differ between ranks are an error on all, and nobody hangs.
#include <cstdlib>

#include "lockstep/base/libtorch.h"
#include "lockstep/comm/connect.h"
#include "world.h"

namespace lockstep {
namespace {

using test::own_rank;
using test::world;

// The group learns the level when it is opened; what comes after is not to compare.
ProcessGroup open_in_detail(const std::string& backend, std::chrono::milliseconds timeout) {
  if (own_rank() == 0) ::setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL", 1);  // it need not have travelled
  auto group = test::open(backend, timeout);
  ::unsetenv("TORCH_DISTRIBUTED_DEBUG");
  comm::read_debug_level();
  return group;
}

struct Differing {
  const char* aspect;
  std::function<void(ProcessGroup&, bool odd)> call;
  std::string usual, odd;
};

void all_reduce(ProcessGroup& group, at::Tensor tensor, c10d::ReduceOp::RedOpType op = c10d::ReduceOp::SUM) {
  std::vector<at::Tensor> tensors = {std::move(tensor)};
  c10d::AllreduceOptions options;
  options.reduceOp = op;
  group->allreduce(tensors, options)->wait();
}

void broadcast(ProcessGroup& group, at::Tensor tensor, int root) {
  std::vector<at::Tensor> tensors = {std::move(tensor)};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  group->broadcast(tensors, options)->wait();
}

const std::vector<Differing>& differing() {
  using c10d::ReduceOp;
  static const std::vector<Differing> all = {
      {"operation",
       [](auto& group, bool odd) {
         odd ? broadcast(group, at::ones({10}), 0) : all_reduce(group, at::ones({10}));
       },
       "all-reduce (sum) of Float [10]", "broadcast with root 0 of Float [10]"},
      {"operation and type and shape",
       [](auto& group, bool odd) {
         odd ? group->barrier()->wait(), void() : all_reduce(group, at::ones({10}));
       },
       "all-reduce (sum) of Float [10]", "barrier"},
      {"operation", [](auto& group, bool odd) { broadcast(group, at::ones({3}), odd ? 1 : 0); },
       "broadcast with root 0 of Float [3]", "broadcast with root 1 of Float [3]"},
      {"operation",
       [](auto& group, bool odd) { all_reduce(group, at::ones({3}), odd ? ReduceOp::MAX : ReduceOp::SUM); },
       "all-reduce (sum) of Float [3]", "all-reduce (max) of Float [3]"},
      {"shape",
       [](auto& group, bool odd) {
         all_reduce(group, at::ones({odd ? 5 : 10, 2}));
       },
       "all-reduce (sum) of Float [10, 2]", "all-reduce (sum) of Float [5, 2]"},
      {"type",
       [](auto& group, bool odd) { all_reduce(group, at::ones({10}, odd ? at::kDouble : at::kFloat)); },
       "all-reduce (sum) of Float [10]", "all-reduce (sum) of Double [10]"},
  };
  return all;
}

class Calls : public ::testing::TestWithParam<const char*> {};

TEST_P(Calls, ThatDifferAreNamedWithTheirRanksOnAll) {
  if (world() == 1) GTEST_SKIP() << "needs two ranks";
  const int last = world() - 1;
  const std::string others = world() == 2   ? "rank 0: "
                             : world() == 3 ? "ranks 0 and 1: "
                                            : "ranks 0, 1 and 2: ";
  for (const auto& differing : differing()) {
    auto group = open_in_detail(GetParam(), std::chrono::seconds(20));
    all_reduce(group, at::ones({4}));
    const std::string text = test::error_of([&] { differing.call(group, own_rank() == last); });
    EXPECT_EQ(text.find("collective 2: the ranks' calls differ in " + std::string(differing.aspect) + ": "),
              0)
        << text;
    EXPECT_NE(text.find(others + differing.usual), std::string::npos) << text;
    EXPECT_NE(text.find("rank " + std::to_string(last) + ": " + differing.odd), std::string::npos) << text;
    EXPECT_TRUE(comm::is_dead(group));
    const auto texts = test::runtime().all_gather(text);
    for (const auto& other : texts) EXPECT_EQ(other, text) << "an error of all ranks is said once";
  }
}

TEST_P(Calls, ThatAreAlikeWorkAsEver) {
  auto group = open_in_detail(GetParam(), std::chrono::seconds(60));
  at::Tensor input = at::full({3}, own_rank() + 1.0f), output = at::empty({3 * world()});
  base::own_all_gather_single(*group, output, input)->wait();
  EXPECT_EQ(output[3 * world() - 1].item<float>(), float(world()));
  std::vector<at::Tensor> many(200, at::ones({2, 3, 4}));  // more words than are sent
  group->allreduce_coalesced(many)->wait();
  std::vector<at::Tensor> sum = {at::ones({5})};
  group->allreduce(sum)->wait();
  EXPECT_EQ(sum[0][4].item<float>(), float(world()));
  group->barrier()->wait();
  EXPECT_FALSE(comm::is_dead(group));
}

TEST_P(Calls, OneThatARankLeavesOutIsATimeoutThatNamesIt) {
  if (world() == 1) GTEST_SKIP() << "needs two ranks";
  auto group = open_in_detail(GetParam(), std::chrono::milliseconds(500));
  const int absent = world() - 1;
  if (own_rank() != absent) {
    const std::string text = test::error_of([&] { all_reduce(group, at::ones({4})); });
    EXPECT_NE(text.find("rank " + std::to_string(absent) + " (host "), std::string::npos) << text;
    EXPECT_NE(text.find("did not arrive"), std::string::npos) << text;
  }
  test::runtime().barrier();
}

INSTANTIATE_TEST_SUITE_P(Backends, Calls, ::testing::Values("shared", "gloo", "mpi"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lockstep
