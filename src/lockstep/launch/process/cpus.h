#pragma once
// How many threads a rank may use: its share of the cores that the scheduler and its affinity mask allow.

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

/// `sharers`: how many of the node's ranks may run on this rank's cores, including itself; nullopt = unknown.
/// A user's OMP_NUM_THREADS is used as it is; PBS's preset is limited to the share.
ThreadShare choose_threads(const Job& job, const Environment& environment, const CpuMask& mask,
                           std::optional<int> sharers, const std::optional<CpuQuota>& quota = {});

/// Collective with MPI: ranks that are bound to different cores do not share them.
ThreadShare share_threads(const Runtime& runtime, const Environment& environment);

}  // namespace lockstep::launch
