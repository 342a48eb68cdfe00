#pragma once
// What `lockstep whoami` prints: a table of the job's processes and the reasons, or the same as JSON.

#include <string>
#include <vector>

#include "tools/whoami/process.h"

namespace lockstep::whoami {

struct Report {
  std::vector<Process> processes;  // sorted by rank
  std::string ends;                // when the batch system ends the job, UTC; "" = not known
  bool complete() const {
    return !processes.empty() && processes.size() == static_cast<size_t>(processes[0].job.world);
  }
};

/// A table of at most 100 columns (host names permitting), then each reason once.
std::string as_text(const Report& report);
/// The schema is in docs/launchers.md.
std::string as_json(const Report& report);

}  // namespace lockstep::whoami
