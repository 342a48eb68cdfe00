#include "lockstep/launch/process/mpi.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "lockstep/launch/process/cpus.h"
#include "ranks.h"

namespace lockstep {

using test::runtime;

TEST(Runtime, GathersTextsOfUnequalLengthInRankOrderOnAllOrOnRankZero) {
  const auto& job = runtime().job();
  const auto own = std::string(static_cast<size_t>(job.rank) * 1000, 'x') + std::to_string(job.rank);
  const auto on_all = runtime().all_gather(own), on_first = runtime().gather(own);
  ASSERT_EQ(on_all.size(), static_cast<size_t>(job.world));
  for (size_t i = 0; i < on_all.size(); ++i)
    EXPECT_EQ(on_all[i], std::string(i * 1000, 'x') + std::to_string(i));
  EXPECT_EQ(on_first, job.rank == 0 ? on_all : std::vector<std::string>());
}

TEST(Runtime, BroadcastsRankZerosText) {
  std::string text(3'000'000, 'a');
  text[1'234'567] = '\0';
  EXPECT_EQ(runtime().broadcast(runtime().job().rank == 0 ? text : "mine"), text);
  EXPECT_EQ(runtime().broadcast(runtime().job().rank == 0 ? "" : "mine"), "");
}

// This program has set no handler, so what stands there is MPI's default.
TEST(Runtime, TheProgramsErrorHandlerStays) {
  if (!runtime().has_mpi()) GTEST_SKIP() << "started without mpirun";
  mpi::Handler of_world = mpi::Handler::null, of_ours = mpi::Handler::null;
  ASSERT_EQ(mpi::calls().comm_get_errhandler(mpi::Comm::world, &of_world), mpi::kSuccess);
  EXPECT_EQ(of_world, mpi::Handler::errors_are_fatal);
  for (const mpi::Comm comm : {runtime().mpi().world(), launch::failure_comm()}) {
    ASSERT_EQ(mpi::calls().comm_get_errhandler(comm, &of_ours), mpi::kSuccess);
    EXPECT_EQ(of_ours, mpi::Handler::errors_return);
  }
}

// A config says how long to wait for a rank when MPI is up already.
TEST(Runtime, ALaterPatienceHoldsForTheExchanges) {
  if (!runtime().has_mpi()) GTEST_SKIP() << "started without mpirun";
  launch::MpiSession session(std::chrono::milliseconds(300));
  session.set_timeout(std::chrono::seconds(20));
  session.set_timeout(std::chrono::milliseconds(1));  // the longer one holds
  if (runtime().job().rank == 1) std::this_thread::sleep_for(std::chrono::milliseconds(900));
  EXPECT_EQ(session.broadcast(runtime().job().rank == 0 ? "rank 0's" : "mine"), "rank 0's");
}

TEST(Runtime, OneHostIsOneNode) {
  const auto& job = runtime().job();
  EXPECT_EQ(job.nodes, 1);
  EXPECT_EQ(job.node_rank, 0);
  EXPECT_EQ(job.local_rank, job.rank);
  EXPECT_EQ(job.local_world, job.world);
}

TEST(ThreadsOfRanks, TogetherAreNoMoreThanTheCores) {
  const launch::ThreadShare own = launch::share_threads(runtime(), {});
  int total = 0;
  for (const auto& text : runtime().all_gather(std::to_string(own.threads))) total += std::stoi(text);
  EXPECT_GE(own.threads, 1);
  EXPECT_LE(total, std::max(runtime().job().world, launch::own_cpus().machine_cores)) << own.because;
}

}  // namespace lockstep
