#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <csignal>
#include <filesystem>

#include "world.h"

#include "lockstep/base/error.h"
#include "lockstep/base/libtorch.h"

namespace lockstep {
namespace {

using test::own_rank;
using test::world;

TEST(Gloo, GathersScattersAndMeets) {
  auto group = test::open("gloo");
  std::vector<at::Tensor> input = {at::full({2}, own_rank())};
  std::vector<std::vector<at::Tensor>> lists(1);
  for (int rank = 0; rank < world(); ++rank) lists[0].push_back(at::empty({2}, at::kLong));
  input[0] = input[0].to(at::kLong);
  group->allgather(lists, input)->wait();
  for (int rank = 0; rank < world(); ++rank) EXPECT_EQ(lists[0][size_t(rank)][0].item<int64_t>(), rank);

  at::Tensor whole = at::arange(2.0 * world());
  at::Tensor part = at::empty({2}, whole.options());
  base::own_reduce_scatter_single(*group, part, whole)->wait();
  EXPECT_EQ(part[0].item<float>(), 2.0f * float(own_rank()) * float(world()));
  group->barrier()->wait();
}

TEST(Gloo, RefusesGroupsOfAProgramsOwn) {
  const auto own = c10::make_intrusive<c10d::ProcessGroup>(c10::make_intrusive<c10d::HashStore>(), 0, 1);
  EXPECT_THROW(comm::split(test::runtime(), {.backend = "gloo"}, c10::kCPU, own, 0, "part"), InputError);
  EXPECT_THROW(comm::judge_stall(own, "a step", std::chrono::seconds(1)), InputError);
}

TEST(Gloo, WrongArgumentsLeaveTheGroupAlive) {
  auto group = test::open("gloo");
  std::vector<at::Tensor> none;
  EXPECT_ANY_THROW(group->getBackend(c10::kCPU)->allreduce(none));
  std::vector<at::Tensor> tensors = {at::ones({1})};
  group->allreduce(tensors)->wait();
  EXPECT_EQ(tensors[0].item<float>(), float(world()));
}

// What waits for a group's death is no reason to keep it.
TEST(Gloo, AGroupThatEndsTakesItsThreadsAlong) {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  auto group = test::open("gloo");
  group->barrier()->wait();
  const auto with = threads();
  group.reset();
  EXPECT_LT(threads(), with);
}

TEST(Gloo, SigpipeIsIgnored) {
  struct sigaction now {};
  std::signal(SIGPIPE, SIG_DFL);
  auto group = test::open("gloo");
  ::sigaction(SIGPIPE, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_IGN);
}

TEST(Connect, RefusesWhatThereIsNot) {
  EXPECT_NE(test::error_of([] { test::open("nccl"); }).find("needs a GPU"), std::string::npos);
  EXPECT_NE(test::error_of([] { test::open("smoke-signals"); }).find("smoke-signals"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
