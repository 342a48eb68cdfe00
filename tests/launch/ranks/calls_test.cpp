// Every call of MPI, under whichever MPI started this: what goes in and what comes out is the standard ABI's.
#include "lockstep/mpi/calls.h"

#include <array>
#include <string>
#include <thread>

#include "lockstep/launch/process/mpi.h"
#include "ranks.h"

namespace lockstep {
namespace {

using mpi::calls;
using mpi::Type;

class Calls : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!test::runtime().has_mpi()) GTEST_SKIP() << "started without mpirun";
    ASSERT_EQ(calls().comm_dup(mpi::Comm::world, &comm_), mpi::kSuccess);
    ASSERT_EQ(calls().comm_set_errhandler(comm_, mpi::Handler::errors_return), mpi::kSuccess);
    calls().comm_rank(comm_, &rank_);
    calls().comm_size(comm_, &size_);
  }
  void TearDown() override {
    if (comm_ == mpi::Comm::null) return;
    calls().barrier(comm_);
    EXPECT_EQ(calls().comm_free(&comm_), mpi::kSuccess);
    EXPECT_EQ(comm_, mpi::Comm::null);
  }

  void send(const void* data, int count, Type type, int to, int tag) {
    mpi::Request request = mpi::Request::null;
    ASSERT_EQ(calls().isend(data, count, type, to, tag, comm_, &request), mpi::kSuccess);
    ASSERT_EQ(calls().wait(&request, mpi::kIgnore), mpi::kSuccess);
    EXPECT_EQ(request, mpi::Request::null);
  }

  static mpi::Status wait_for(mpi::Request& request) {
    mpi::Status status{};
    for (int done = 0; !done; std::this_thread::yield())
      EXPECT_EQ(calls().test(&request, &done, &status), mpi::kSuccess);
    return status;
  }

  static int count_of(const mpi::Status& status, Type type) {
    int count = -1;
    calls().get_count(&status, type, &count);
    return count;
  }

  mpi::Comm comm_ = mpi::Comm::null;
  int rank_ = 0, size_ = 1;
};

TEST_F(Calls, TellTheRanksAndTheThreadsThatMayCall) {
  EXPECT_EQ(rank_, test::runtime().job().rank);
  EXPECT_EQ(size_, test::runtime().job().world);
  int level = -1;
  calls().query_thread(&level);
  EXPECT_TRUE(level == mpi::kThreadSerialized || level == mpi::kThreadMultiple) << level;
}

TEST_F(Calls, AMessageFromAnybodyTellsItsSenderTagAndLength) {
  if (size_ == 1) GTEST_SKIP() << "needs two ranks";
  const std::array<int, 3> sent = {1, 2, 3};
  if (rank_ == 1) send(sent.data(), 3, Type::int32, 0, 42);
  if (rank_ != 0) return;
  std::array<int, 9> got{};
  mpi::Request request = mpi::Request::null;
  ASSERT_EQ(calls().irecv(got.data(), 9, Type::int32, mpi::kAnySource, mpi::kAnyTag, comm_, &request),
            mpi::kSuccess);
  ASSERT_NE(request, mpi::Request::null);
  const auto status = wait_for(request);
  EXPECT_EQ(request, mpi::Request::null);
  EXPECT_EQ(status.source, 1);
  EXPECT_EQ(status.tag, 42);
  EXPECT_EQ(count_of(status, Type::int32), 3);
  EXPECT_EQ(count_of(status, Type::byte), 12);
  EXPECT_EQ(got[2], 3);
}

TEST_F(Calls, SumsAndTheirLikeAreOfTheTypeAndKindThatWereAsked) {
  const auto size = static_cast<unsigned long long>(size_);
  unsigned long long own = static_cast<unsigned long long>(rank_) + 1;
  calls().allreduce(mpi::kInPlace, &own, 1, Type::unsigned_long_long, mpi::Op::sum, comm_);
  EXPECT_EQ(own, size * (size + 1) / 2);
  struct Place {
    double value;
    int rank;
  } mine{static_cast<double>(rank_), rank_}, last{};
  calls().allreduce(&mine, &last, 1, Type::double_int, mpi::Op::maxloc, comm_);
  EXPECT_EQ(last.rank, size_ - 1);
  const std::array<unsigned long, 2> bounds = {5UL + own, ~0UL};
  std::array<unsigned long, 2> least{};
  calls().allreduce(bounds.data(), least.data(), 2, Type::unsigned_long, mpi::Op::min, comm_);
  EXPECT_EQ(least, bounds);
  const auto bit = static_cast<unsigned char>(1U << rank_);
  unsigned char bits = 0;
  calls().allreduce(&bit, &bits, 1, Type::byte, mpi::Op::bor, comm_);
  EXPECT_EQ(bits, (1U << size_) - 1);
  const float one = 1;
  float sum = 0, most = 0;
  calls().allreduce(&one, &sum, 1, Type::float32, mpi::Op::sum, comm_);
  calls().allreduce(&one, &most, 1, Type::float32, mpi::Op::max, comm_);
  EXPECT_EQ(sum, static_cast<float>(size_));
  EXPECT_EQ(most, 1);
}

TEST_F(Calls, WhoIsOfNoPartGetsNoCommunicator) {
  mpi::Comm part = mpi::Comm::world;
  ASSERT_EQ(calls().comm_split(comm_, rank_ == 0 ? 0 : mpi::kUndefined, 0, &part), mpi::kSuccess);
  EXPECT_EQ(part == mpi::Comm::null, rank_ != 0);
  if (part != mpi::Comm::null) calls().comm_free(&part);
}

TEST_F(Calls, ThoseOfANodeAreACommunicator) {
  mpi::Comm node = mpi::Comm::null;
  ASSERT_EQ(calls().comm_split_type(comm_, mpi::kShared, 0, mpi::Info::null, &node), mpi::kSuccess);
  int mates = 0;
  calls().comm_size(node, &mates);
  EXPECT_EQ(mates, size_);
  calls().comm_free(&node);
}

TEST_F(Calls, AnErrorIsACodeWithMpisOwnWords) {
  int number = 0;
  const int code = calls().bcast(&number, 1, Type::int32, size_ + 70, comm_);
  ASSERT_NE(code, mpi::kSuccess);
  EXPECT_NE(launch::mpi_failure(code, "MPI_Bcast").find("MPI_Bcast failed: "), std::string::npos);
  EXPECT_GT(launch::mpi_failure(code, "MPI_Bcast").size(), std::string("MPI_Bcast failed: ").size());
}

}  // namespace
}  // namespace lockstep
