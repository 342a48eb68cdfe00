#pragma once
// `lockstep whoami`: what the processes of a job know of their places.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/launch/device.h"
#include "lockstep/launch/job.h"

namespace lockstep::whoami {

/// One process of a job: its rank, its place, its device and why (docs/reference/launchers.md).
struct Process : Job {
  int pid = 0;
  std::string device = "none";
  std::string device_error = {};  // why it has none
  int threads = 1;
  std::string cpus = {};         // the hardware threads it may run on, "0-3,8"
  launch::GpuIdentity gpu = {};  // only known to the process itself
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Process, rank, world, local_rank, local_world, node_rank, nodes, host,
                                   launcher, mpi, scheduler, job_id, because, warnings, pid, device,
                                   device_error, threads, cpus)

struct Report {
  std::vector<Process> processes;  // sorted by rank
  std::string ends;                // when the batch system ends the job, UTC; "" = not known
  bool complete() const { return std::ssize(processes) == processes.at(0).world; }
};

/// A table of at most 100 columns (host names permitting), then each reason once.
std::string as_text(const Report& report);
/// The schema is in docs/reference/launchers.md.
std::string as_json(const Report& report);

/// Collective, if the ranks can meet: rank 0 prints the report. Otherwise each process prints its own. Then
/// throws for what is wrong with the job: a device or ranks that are missing, GPUs that two ranks share.
void run(const std::string& launcher, const std::string& device, bool json);

}  // namespace lockstep::whoami
