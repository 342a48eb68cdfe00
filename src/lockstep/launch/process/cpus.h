#pragma once
// How many threads a rank may use: its share of the cores that the scheduler and its affinity mask leave it.

#include <optional>
#include <string>
#include <vector>

#include "lockstep/launch/control_groups.h"
#include "lockstep/launch/identify.h"
#include "lockstep/launch/process/runtime.h"

namespace lockstep::launch {

/// The cores that this process may run on. Two hardware threads of one core count once.
struct CpuMask {
  std::string units;  // the hardware threads, in hwloc's list form: "0-3,8"
  int cores = 1;
  int machine_cores = 1;
};

CpuMask own_cpus();

/// Whether two masks in list form share a hardware thread.
bool masks_overlap(const std::string& a, const std::string& b);

struct ThreadShare {
  int threads = 1;
  std::string because;
  std::vector<std::string> warnings;
};

/// `sharers`: how many of the node's ranks may run on this rank's cores, itself included; nullopt = not
/// known. OMP_NUM_THREADS is honoured where a person set it; what PBS presets is bounded by the share.
ThreadShare choose_threads(const Job& job, const Environment& environment, const CpuMask& mask,
                           std::optional<int> sharers, const std::optional<CpuQuota>& quota = {});

/// Collective over the node where there is MPI: ranks that are bound apart need not share.
ThreadShare share_threads(const Runtime& runtime, const Environment& environment);

}  // namespace lockstep::launch
