#pragma once
// What a job's end means for a run in it.

#include <optional>

#include "lockstep/launch/deadline.h"
#include "tools/doctor/node/finding.h"

namespace lockstep::doctor {

/// A pure function of the job, its end and the time.
Finding judge_deadline(const Job& job, std::optional<launch::Time> end, launch::Time now);

}  // namespace lockstep::doctor
