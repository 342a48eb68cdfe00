#include "lockstep/launch/process/mpi.h"

#include <chrono>
#include <thread>

#include "ranks.h"

namespace lockstep {

using test::runtime;

TEST(Runtime, EveryRankHasItsOwnNumberInOneWorld) {
  const auto& job = runtime().job();
  const auto ranks = runtime().all_gather(std::to_string(job.rank));
  ASSERT_EQ(ranks.size(), static_cast<size_t>(job.world));
  for (int i = 0; i < job.world; ++i) EXPECT_EQ(ranks[static_cast<size_t>(i)], std::to_string(i));
}

TEST(Runtime, GathersTextsOfUnequalLength) {
  const int rank = runtime().job().rank;
  const auto texts = runtime().all_gather(std::string(static_cast<size_t>(rank) * 1000, 'x'));
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i], std::string(i * 1000, 'x'));
}

TEST(Runtime, GathersTextsAtRankZeroAlone) {
  const auto& job = runtime().job();
  const auto texts = runtime().gather(std::string(static_cast<size_t>(job.rank) * 1000, 'x'));
  ASSERT_EQ(texts.size(), static_cast<size_t>(job.rank == 0 ? job.world : 0));
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i], std::string(i * 1000, 'x'));
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
  for (const mpi::Comm comm : {runtime().mpi().world(), launch::last_words_comm()}) {
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

}  // namespace lockstep
