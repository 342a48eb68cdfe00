#pragma once
// Who the processes of a job are: rank 0 hears them all.

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/device.h"
#include "lockstep/launch/identify.h"
#include "lockstep/launch/process/runtime.h"

namespace lockstep::whoami {

// One process of a job: its rank, and what it will compute on.

struct Process {
  Job job;
  long pid = 0;
  std::string device;
  int threads = 0;
  std::string cpus;          // the hardware threads it may run on, "0-3,8"
  std::string device_error;  // why there is no device
};

/// This one; `device` is what is asked for. A device that is missing is in it, and no exception.
Process own_process(const launch::Runtime& runtime, const std::string& device,
                    const launch::Environment& environment);

nlohmann::ordered_json to_json(const Process& process);
/// As it travels to rank 0.
std::string pack(const Process& process);
Process unpack(const std::string& text);

// What `lockstep whoami` prints: a table of the job's processes and the reasons, or the same as JSON.

struct Report {
  std::vector<Process> processes;  // sorted by rank
  std::string ends;                // when the batch system ends the job, UTC; "" = not known
  bool complete() const {
    return !processes.empty() && processes.size() == static_cast<size_t>(processes[0].job.world);
  }
};

/// A table of at most 100 columns (host names permitting), then each reason once.
std::string as_text(const Report& report);
/// The schema is in docs/reference/launchers.md.
std::string as_json(const Report& report);

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
