#pragma once
// A process group for the job: connect() opens the backend asked for and makes every rank known to the
// others.

#include <chrono>
#include <string>

#include "lockstep/comm/group.h"
#include "lockstep/launch/runtime.h"

namespace lockstep::comm {

/// How a job's process group is opened.
struct GroupSettings {
  std::string backend = "auto";                    // auto | nccl | gloo | mpi
  std::chrono::milliseconds join_timeout{60'000};  // for every rank to arrive
  std::chrono::milliseconds timeout{600'000};      // for one collective
  /// A node that answers nothing for this long is lost; LOCKSTEP_SILENCE (seconds) overrules. Not its ranks
  /// are asked but its kernel, which answers however long a step takes.
  std::chrono::milliseconds silence{60'000};
};

/// Opens the group on every rank of the job, or throws naming the ranks that did not come. Where the ranks
/// have not met yet (comm/join.h) they meet here, and the job's layout may change. `auto` is nccl for a CUDA
/// device, else gloo. After an error in a collective the group is dead: every later one throws at
/// once.
ProcessGroup connect(launch::Runtime& runtime, const GroupSettings& settings, c10::Device device = c10::kCPU);

/// Whether an error has ended this group (gloo and mpi; NCCL's watchdog ends the process instead).
bool is_dead(const ProcessGroup& group);

}  // namespace lockstep::comm
