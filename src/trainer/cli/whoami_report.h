#pragma once
// What `lockstep whoami` prints: a table of the job's processes and the reasons, or the same as JSON.

#include <map>
#include <string>
#include <vector>

#include "lockstep/launch/identify.h"

namespace lockstep::cli {

/// One process of the job, with what it will compute on.
struct Process {
  Job job;
  long pid = 0;
  std::string device;
  int threads = 0;
  std::string cpus;          // the hardware threads it may run on, "0-3,8"
  std::string device_error;  // why there is no device
};

std::string pack(const Process& process);
Process unpack(const std::string& text);

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

}  // namespace lockstep::cli
