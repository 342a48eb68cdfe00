// Messages between two ranks, and roots and peers that are none.

#include <chrono>
#include <thread>

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

}  // namespace
}  // namespace lockstep
