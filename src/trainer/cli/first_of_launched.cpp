#include "trainer/cli/first_of_launched.h"

#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/launch/launchers.h"
#include "lockstep/launch/process/error_reporter.h"
#include "lockstep/launch/variables.h"

namespace lockstep::cli {

bool is_first_of_launched() {
  auto environment = launch::current_environment();
  const auto [rank, world, one_host] = launch::rank_by_environment(environment);
  if (rank == 0 || launch::is_set(environment, "TORCHELASTIC_RUN_ID")) return rank == 0;
  for (const char* name : {"RANK", "WORLD_SIZE"}) environment.erase(name);
  if (launch::find_launcher(environment, "auto")) return launch::rank_by_environment(environment).rank == 0;
  // not thrown: rank 0 speaks of such an error, and there is none
  log::error(describe(InputError(format("this shell says that it is rank {} of {}", rank, world),
                                 "RANK, WORLD_SIZE", "unset RANK WORLD_SIZE")));
  std::exit(kBadInput);
}

}  // namespace lockstep::cli
