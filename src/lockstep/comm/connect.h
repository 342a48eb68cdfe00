#pragma once
// A process group for the job: connect() opens the backend asked for and makes every rank known to the
// others.

#include <string>

#include "lockstep/comm/group.h"
#include "lockstep/launch/options.h"
#include "lockstep/launch/process/runtime.h"

namespace lockstep::comm {

/// The backend that these options ask for. `auto` is nccl on a GPU, else shared, or gloo where each of
/// several nodes has one rank and for an algorithm's messages; a process alone that nobody gave an MPI has
/// auto's for mpi, so that what ranks have trained is evaluated by one.
std::string backend_for(const launch::Runtime& runtime, const LaunchOptions& options, bool on_gpu);

/// Where the tensors of a rank may be that go through the group: on its device alone, or on other GPUs of
/// its own, too. Then all ranks must begin with each of theirs in the same order.
enum class Spread { one, several };

/// Opens the group on every rank of the job, or throws naming the ranks that did not come. Where the ranks
/// have not met yet (comm/join.h) they meet here, and the job's layout may change. options.device was the
/// caller's to choose. After an error in a collective the group is dead: every later one throws at once.
ProcessGroup connect(launch::Runtime& runtime, const LaunchOptions& options, c10::Device device = c10::kCPU,
                     Spread spread = Spread::one);

/// The ranks that name the same part, in rank order, as a group of their own with the same backend; none
/// where a part has one rank. `name` tells splits apart: no two calls may share it. Collective over the job.
ProcessGroup split(launch::Runtime& runtime, const LaunchOptions& options, c10::Device device,
                   const ProcessGroup& whole, int part, const std::string& name, Spread spread = Spread::one);

/// Turns on c10d's own checks as TORCH_DISTRIBUTED_DEBUG asks for them. InputError where it has no such
/// value.
void read_debug_level();

/// What the job calls the group's rank `rank`: people know ranks by the job's numbers.
int rank_in_job(const ProcessGroup& group, int rank);

/// For who has waited for `limit` in something that no backend times, `what`: the error that names the ranks
/// at fault. The group is dead from then on.
std::exception_ptr diagnose_stall(const ProcessGroup& group, const std::string& what,
                                  std::chrono::milliseconds limit);

/// Whether a rank of this node has died or left the group: whatever waits for all ranks waits in vain.
bool misses_rank(const ProcessGroup& group);

/// Whether an error has ended this group (on CPUs; NCCL's watchdog ends the process instead).
bool is_dead(const ProcessGroup& group);

}  // namespace lockstep::comm
