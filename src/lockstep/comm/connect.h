#pragma once
// A process group for the job: connect() opens the requested backend on every rank.

#include <memory>
#include <string>

#include "lockstep/comm/group.h"
#include "lockstep/launch/options.h"
#include "lockstep/launch/process/alarm.h"
#include "lockstep/launch/process/runtime.h"

namespace lockstep::comm {

/// The backend for these options. `auto` is nccl on a GPU, otherwise shared. It is gloo if each of several
/// nodes has one rank, or with launch.allreduce. A single process without MPI uses auto's backend for mpi, so
/// that it can evaluate what several ranks trained.
std::string backend_for(const launch::Runtime& runtime, const LaunchOptions& options, bool on_gpu);

/// Whether the group's tensors are on one device of the rank or on several of its GPUs. With several GPUs all
/// ranks must use them in the same order at first.
enum class Spread { one, several };

/// Opens the group on every rank of the job. Throws an error that names the ranks that did not come. Calls
/// join_ranks() if that was not done yet; then the job's layout may change. The caller applies
/// options.device. After an error in a collective the group is dead: every later one throws at once.
ProcessGroup connect(launch::Runtime& runtime, const LaunchOptions& options, c10::Device device = c10::kCPU,
                     Spread spread = Spread::one);

/// Collective over the job. Returns a group, with the same backend, of the ranks with the same `part`, in
/// rank order; null if a part has one rank. Each call needs another `name`.
ProcessGroup split(launch::Runtime& runtime, const LaunchOptions& options, c10::Device device,
                   const ProcessGroup& whole, int part, const std::string& name, Spread spread = Spread::one);

/// Adds the backend `shared` to a group that Python has made with its store, as connect() would. Collective
/// over the group. `ranks_in_job` are its ranks' numbers in the job; none: it is the whole job.
void add_shared(const ProcessGroup& group, const std::vector<int64_t>& ranks_in_job,
                const LaunchOptions& options);

/// Sets c10d's debug level from TORCH_DISTRIBUTED_DEBUG. InputError if the value is unknown.
void read_debug_level();

/// The rank in the job of the group's rank `rank`. Messages use ranks of the job.
int rank_in_job(const ProcessGroup& group, int rank);

/// The error, naming the ranks at fault, after this rank waited for `limit` in `what`, which no backend
/// times. The group is dead from then on.
std::exception_ptr judge_stall(const ProcessGroup& group, const std::string& what,
                               std::chrono::milliseconds limit);

/// A watch over work that no backend times. If the work reports no progress for `limit`, or a rank of this
/// node has died or left, this process ends with an error that names the ranks at fault.
std::unique_ptr<launch::StallWatch> watch_stalls(const ProcessGroup& group, const std::string& what,
                                                 std::chrono::milliseconds limit);

/// Whether an error has ended this group (on CPUs; NCCL's watchdog ends the process instead).
bool is_dead(const ProcessGroup& group);

}  // namespace lockstep::comm
