#include <algorithm>

#include "lockstep/launch/process/cpus.h"
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

}  // namespace lockstep
