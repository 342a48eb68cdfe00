#include "course/workshop/judges/own_failure.h"

#include <algorithm>

#include "course/workshop/endings.h"

namespace lockstep::workshop {
namespace {

bool failed_alone(const RankRun& rank) {
  const auto& ending = rank.ending();
  const bool met_another =
      ending.error == Code::calls_differ ||  // named at once, by a rank that did not wait
      ending.printed.find("(collective ") != std::string::npos;
  return !ending.is_well() && !met_another;
}

}  // namespace

void require_no_own_failure(const Run& run, const std::string& folder) {
  if (std::any_of(run.ranks.begin(), run.ranks.end(), failed_alone)) require_good_end(run, {}, folder);
}

}  // namespace lockstep::workshop
