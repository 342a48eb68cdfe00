#include "course/workshop/judges/own_failure.h"

#include <algorithm>

#include "course/workshop/endings.h"

namespace lockstep::workshop {
namespace {

// an error in a collective, which another rank may have caused
bool met_another(const Ending& ending) {
  return ending.error && !ending.error->met_in.call.empty();
}

bool failed_alone(const RankRun& rank) {
  return !rank.ending().is_well() && !met_another(rank.ending());
}

}  // namespace

void require_no_own_failure(const Run& run, const std::string& folder) {
  if (std::any_of(run.ranks.begin(), run.ranks.end(), failed_alone)) require_good_end(run, {}, folder);
}

}  // namespace lockstep::workshop
