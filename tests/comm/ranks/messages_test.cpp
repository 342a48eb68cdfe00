// Messages between two ranks, and roots and peers that are none.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "lockstep/base/libtorch.h"
#include "lockstep/comm/connect.h"
#include "lockstep/mpi/calls.h"
#include "world.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using test::own_rank;
using test::world;

class Messages : public ::testing::TestWithParam<const char*> {};

TEST_P(Messages, RanksThatAreNoneAreRefusedAndTheGroupLives) {
  auto group = test::open(GetParam());
  std::vector<at::Tensor> tensors = {at::zeros({4})};
  c10d::BroadcastOptions broadcast;
  c10d::ReduceOptions reduce;
  for (const int bad : {-1, world(), 1'000'000}) {
    broadcast.rootRank = reduce.rootRank = bad;
    for (const auto& text : {test::error_of([&] { group->broadcast(tensors, broadcast)->wait(); }),
                             test::error_of([&] { group->reduce(tensors, reduce)->wait(); })}) {
      const std::string named =
          GetParam() == std::string("gloo") ? "invalid root rank: " : "rank ";  // libtorch's, ours
      EXPECT_NE(text.find(named + std::to_string(bad)), std::string::npos) << text;
    }
    for (const auto& text : {test::error_of([&] { group->send(tensors, bad, 0)->wait(); }),
                             test::error_of([&] { group->recv(tensors, bad, 0)->wait(); })}) {
      EXPECT_NE(text.find("rank " + std::to_string(bad) + " cannot be the "), std::string::npos) << text;
      EXPECT_NE(text.find("the group has " + std::to_string(world()) + " rank"), std::string::npos) << text;
    }
  }
  group->allreduce(tensors)->wait();
  EXPECT_FALSE(comm::is_dead(group));
}

TEST_P(Messages, OneThatNobodySendsNamesTheSenderAndEndsTheGroup) {
  if (world() == 1) GTEST_SKIP() << "needs two ranks";
  auto group = test::open(GetParam(), 300ms);
  if (own_rank() == 0) {
    std::vector<at::Tensor> tensors = {at::ones({4})};
    const std::string text = test::error_of([&] { group->recv(tensors, 1, 3)->wait(); });
    EXPECT_NE(text.find("receive timed out after 0.3 s: rank 1 has not sent one"), std::string::npos) << text;
    EXPECT_TRUE(comm::is_dead(group));
    const std::string again = test::error_of([&] { group->send(tensors, 1, 3)->wait(); });
    EXPECT_NE(again.find("failed earlier"), std::string::npos) << again;
  }
  test::runtime().barrier();
}

TEST_P(Messages, ASenderThatLeftIsNamedAtOnce) {
  if (world() == 1) GTEST_SKIP() << "needs two ranks";
  auto group = test::open(GetParam(), 10min);
  const auto start = std::chrono::steady_clock::now();
  if (own_rank() == 1) group.reset();
  if (own_rank() == 0) {
    std::vector<at::Tensor> tensors = {at::ones({4})};
    const std::string text = test::error_of([&] { group->recv(tensors, 1, 3)->wait(); });
    EXPECT_NE(text.find("receive failed: rank 1 (host "), std::string::npos) << text;
    EXPECT_NE(text.find("left the group"), std::string::npos) << text;
    EXPECT_LT(std::chrono::steady_clock::now() - start, 2min);
  }
  test::runtime().barrier();
}

TEST_P(Messages, WhatWasSentBeforeLeavingArrives) {
  if (world() == 1) GTEST_SKIP() << "needs two ranks";
  auto group = test::open(GetParam(), 20s);
  std::vector<at::Tensor> tensors = {at::full({4}, own_rank() + 1.0)};
  if (own_rank() == 1) group->send(tensors, 0, 3)->wait();
  if (own_rank() == 0) {
    auto work = group->recv(tensors, 1, 3);
    work->wait();
    EXPECT_EQ(tensors[0][3].item<double>(), 2);
    EXPECT_TRUE(work->isCompleted());
    EXPECT_TRUE(work->isSuccess());
  }
  test::runtime().barrier();
}

INSTANTIATE_TEST_SUITE_P(Backends, Messages, ::testing::Values("shared", "gloo", "mpi"),
                         [](const auto& info) { return std::string(info.param); });

TEST(MessagesOverMpi, AShorterOneThanExpectedIsAnError) {
  if (world() == 1) GTEST_SKIP() << "needs two ranks";
  auto group = test::open("mpi", 5s);
  if (own_rank() == 1) {
    std::vector<at::Tensor> tensors = {at::ones({2})};
    group->send(tensors, 0, 3)->wait();
  }
  if (own_rank() == 0) {
    std::vector<at::Tensor> tensors = {at::zeros({4})};
    auto work = group->recv(tensors, 1, 3);
    const std::string text = test::error_of([&] { work->wait(); });
    EXPECT_NE(text.find("rank 1 sent 8 bytes, and rank 0 expects 16"), std::string::npos) << text;
    EXPECT_TRUE(work->isCompleted());
    EXPECT_FALSE(work->isSuccess());
  }
  test::runtime().barrier();
}

// A program that speaks MPI itself: what it waits for on MPI_COMM_WORLD is not ours to answer.
TEST(OwnCommunicator, AWaitForAnythingOnTheWorldIsLeftAlone) {
  if (!test::runtime().has_mpi()) GTEST_SKIP() << "started without mpirun";
  int anything = 0, come = 0;
  mpi::Request request = mpi::Request::null;
  mpi::calls().irecv(&anything, 1, mpi::Type::int32, mpi::kAnySource, mpi::kAnyTag, mpi::Comm::world,
                     &request);
  for (const char* backend : {"shared", "gloo", "mpi"}) test::open(backend)->barrier()->wait();
  mpi::calls().test(&request, &come, mpi::kIgnore);
  EXPECT_FALSE(come) << "a message of ours came on MPI_COMM_WORLD";
  if (come) return;
  mpi::calls().cancel(&request);
  mpi::calls().wait(&request, mpi::kIgnore);
}

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
    EXPECT_NE(text.find("did not call it; the last call was collective 1"), std::string::npos) << text;
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
    // who does not speak to the lost rank itself learns of it when its neighbors let go, as when they end
    group.reset();
    EXPECT_LT(std::chrono::steady_clock::now() - start, 2min);
  }
  test::runtime().barrier();
}

INSTANTIATE_TEST_SUITE_P(Backends, Timeout, ::testing::Values("shared", "gloo", "mpi"),
                         [](const auto& info) { return std::string(info.param); });

// TORCH_DISTRIBUTED_DEBUG=DETAIL: calls that differ between ranks are an error on all, and nobody hangs.

// The group learns the level when it is opened; what comes after is not to compare.
ProcessGroup open_in_detail(const std::string& backend, std::chrono::milliseconds timeout) {
  if (own_rank() == 0) ::setenv("TORCH_DISTRIBUTED_DEBUG", "DETAIL", 1);  // it need not have traveled
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

void all_reduce(const ProcessGroup& group, const at::Tensor& tensor,
                c10d::ReduceOp op = c10d::ReduceOp::SUM) {
  test::reduced(group, tensor, op);
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
  const std::string others = world() == 2   ? "rank 0 calls "
                             : world() == 3 ? "ranks 0 and 1 call "
                                            : "ranks 0, 1 and 2 call ";
  for (const auto& differing : differing()) {
    auto group = open_in_detail(GetParam(), std::chrono::seconds(20));
    all_reduce(group, at::ones({4}));
    const std::string text = test::error_of([&] { differing.call(group, own_rank() == last); });
    EXPECT_EQ(text.find("collective 2: the ranks' calls differ in " + std::string(differing.aspect) + ": "),
              0)
        << text;
    EXPECT_NE(text.find(others + differing.usual), std::string::npos) << text;
    EXPECT_NE(text.find("rank " + std::to_string(last) + " calls " + differing.odd), std::string::npos)
        << text;
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
    EXPECT_NE(text.find("did not call it"), std::string::npos) << text;
  }
  test::runtime().barrier();
}

INSTANTIATE_TEST_SUITE_P(Backends, Calls, ::testing::Values("shared", "gloo", "mpi"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace lockstep
