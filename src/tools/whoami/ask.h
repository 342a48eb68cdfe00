#pragma once
// What `lockstep whoami` asks the processes of a job, and prints on rank 0.

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/device.h"
#include "lockstep/launch/process/runtime.h"

namespace lockstep::whoami {

/// One process of a job: its rank, its place, its device and why (docs/reference/launchers.md).
using Process = nlohmann::ordered_json;

/// `cpus`: the hardware threads it may run on, "0-3,8"; `device_error`: why it has no device.
Process describe(const Job& job, const std::string& device, const std::string& device_error, int threads,
                 const std::string& cpus);

struct Report {
  std::vector<Process> processes;  // sorted by rank
  std::string ends;                // when the batch system ends the job, UTC; "" = not known
  bool complete() const { return !processes.empty() && processes.size() == processes[0].at("world"); }
};

/// A table of at most 100 columns (host names permitting), then each reason once.
std::string as_text(const Report& report);
/// The schema is in docs/reference/launchers.md.
std::string as_json(const Report& report);

struct Answers {
  std::optional<Report> report;  // on rank 0, and on each rank where the others could not be asked
  Process deviceless;            // the first process without the device that was asked for, or null
  bool met = true;               // the ranks have met, and can be asked more
  launch::GpuIdentity gpu = {};  // this rank's
};

/// Collective, if the ranks can meet. Otherwise each process reports itself.
Answers ask_all(launch::Runtime& runtime, const std::string& device);

/// Throws for what is wrong with the job, once the report is printed: a device or ranks that are missing,
/// GPUs that two ranks share. Collective as ask_all() is.
void refuse_missing(launch::Runtime& runtime, const Answers& answers);

}  // namespace lockstep::whoami
