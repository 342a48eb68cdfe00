#pragma once
// What DDP promises, for the judges of programs that train with it: one model on all ranks.

#include <string>
#include <vector>

#include "course/workshop/judge.h"

namespace lockstep::workshop {

/// The same but for the rounding of a training in float32.
bool agree(double is, double wanted);
bool agree(const std::vector<double>& is, const std::vector<double>& wanted);

/// NotYet where the ranks end with different numbers under this name.
void require_one_model(const Run& run, const std::string& name);

}  // namespace lockstep::workshop
