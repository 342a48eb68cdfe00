#pragma once
// Who the processes of a job are: rank 0 hears them all.

#include <optional>
#include <string>

#include "lockstep/launch/device.h"
#include "lockstep/launch/process/runtime.h"
#include "tools/whoami/report.h"

namespace lockstep::whoami {

struct Answers {
  std::optional<Report> report;  // on rank 0, and on each rank where the others could not be asked
  std::string deviceless;        // the first process without the device that was asked for, packed
  bool met = true;               // the ranks have met, and can be asked more
  launch::GpuIdentity gpu = {};  // this rank's
};

/// Collective, as far as the ranks reach each other: over the network, where there is no MPI, that may be
/// what is broken, and then each speaks for itself.
Answers ask_all(launch::Runtime& runtime, const std::string& device);

/// Throws for what is wrong with the job, once the report is printed: a device or ranks that are missing,
/// GPUs that two ranks share. Collective as ask_all() is.
void refuse_missing(launch::Runtime& runtime, const Answers& answers);

}  // namespace lockstep::whoami
