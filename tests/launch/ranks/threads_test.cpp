#include <algorithm>

#include "lockstep/launch/process/cpus.h"
#include "lockstep/launch/process/mpi.h"
#include "ranks.h"

namespace lockstep {

using test::runtime;

TEST(ThreadsOfRanks, TogetherAreNoMoreThanTheCores) {
  const launch::ThreadShare own = launch::share_threads(runtime(), {});
  int total = 0;
  for (const auto& text : runtime().all_gather(std::to_string(own.threads))) total += std::stoi(text);
  EXPECT_GE(own.threads, 1);
  EXPECT_LE(total, std::max(runtime().job().world, launch::own_cpus().machine_cores)) << own.because;
}

TEST(ThreadsOfRanks, TheNodeGathersInLocalOrder) {
  if (!runtime().has_mpi()) GTEST_SKIP() << "started without mpirun";
  const auto texts = runtime().mpi().all_gather_on_node(std::to_string(runtime().job().local_rank));
  ASSERT_EQ(texts.size(), static_cast<size_t>(runtime().job().local_world));
  for (size_t i = 0; i < texts.size(); ++i) EXPECT_EQ(texts[i], std::to_string(i));
}

}  // namespace lockstep
