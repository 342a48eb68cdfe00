#pragma once
// A rank's facts, collected on its own node without asking other ranks.

#include <functional>
#include <string>
#include <vector>

#include "tools/doctor/doctor.h"
#include "tools/doctor/facts.h"

namespace lockstep::doctor {

/// `begin` gets the name of each collector before it starts. A collector that fails leaves its error in
/// facts.failed. The job is not known yet.
RankFacts collect(const DoctorSettings& settings, const std::function<void(const char* name)>& begin);

/// Which of its GPUs this rank uses, once its job is known.
void choose_gpu(RankFacts& facts);

/// "sm_90", "compute_90", ...: the GPU architectures in the text of at::show_config().
std::vector<std::string> architectures_in(const std::string& config);

}  // namespace lockstep::doctor
