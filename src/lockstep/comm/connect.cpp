#include "lockstep/comm/connect.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/debug.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/algorithm_backend.h"
#include "lockstep/comm/cuda_plugin.h"
#include "lockstep/comm/gloo_group.h"
#include "lockstep/comm/mpi/backend.h"
#include "lockstep/comm/mpi/comms.h"
#include "lockstep/comm/rendezvous/join.h"
#include "lockstep/comm/rendezvous/network.h"
#include "lockstep/comm/rendezvous/store.h"
#include "lockstep/comm/shared_backend.h"
#include "lockstep/comm/shm/intercepted_backend.h"
#include "lockstep/comm/watch/watched_work.h"
#include "lockstep/launch/process/mpi.h"
#include "lockstep/launch/variables.h"

namespace lockstep::comm {
namespace {

using Group = c10d::ProcessGroup;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

// What the factories below share.
struct GroupRequest {
  const LaunchOptions& options;
  c10::Device device;
  Spread spread;
  StorePtr store;
  Job job;                                             // with rank and world of the group
  std::vector<Peer> peers;                             // the group's
  mpi::Comm mpi = mpi::Comm::null;                     // its ranks, where there is MPI
  std::shared_ptr<const PeerMonitor> whole = nullptr;  // of a part
  std::string name = "0";
  std::shared_ptr<PeerMonitor> monitor = nullptr;
};

// c10d's Logger casts every backend named "gloo" to ProcessGroupGloo, so an algorithm over it is CUSTOM.
Group::BackendType add_to_cpu(Group& group, Group::BackendType type, BackendPtr backend,
                              const GroupRequest& request) {
  const auto& options = request.options;
  if (!options.has_algorithm()) {
    group.setBackend(c10::kCPU, type, std::move(backend));
    return type;
  }
  const Delay delay{options.latency_us * 1e-6, options.bandwidth_gbit * 1e9 / 8};
  group.setBackend(
      c10::kCPU, Group::BackendType::CUSTOM,
      c10::make_intrusive<AlgorithmBackend>(std::move(backend), find_all_reduce(options.allreduce), delay,
                                            request.monitor, options.timeout));
  return Group::BackendType::CUSTOM;
}

Group::BackendType add_gloo(Group& group, const GroupRequest& request) {
  return add_to_cpu(group, Group::BackendType::GLOO,
                    make_gloo(request.store, request.job, request.options, request.monitor), request);
}

// An algorithm needs gloo's messages.
Group::BackendType add_shared_or_gloo(Group& group, const GroupRequest& request) {
  const auto& options = request.options;
  if (options.has_algorithm()) return add_gloo(group, request);
  auto backend = make_shared_backend(make_gloo(request.store, request.job, options, request.monitor),
                                     request.monitor, options.join_timeout, options.timeout);
  const auto type =
      backend->getBackendName() == "gloo" ? Group::BackendType::GLOO : Group::BackendType::CUSTOM;
  group.setBackend(c10::kCPU, type, std::move(backend));
  return type;
}

/// Collectives of tensors on GPUs through the CPU: copies the tensors, calls another backend and copies the
/// results back. Slower than NCCL, but ranks may share a GPU, and the sums have the same bits as on CPUs. A
/// call returns when all is done, so later work on the GPU needs no further wait.
class StagedBackend : public InterceptedBackend {
 public:
  explicit StagedBackend(const BackendPtr& on_cpu)
      : InterceptedBackend(on_cpu, on_cpu->getRank(), on_cpu->getSize()) {}
  const std::string getBackendName() const override { return inner()->getBackendName(); }

 protected:
  WorkPtr around(const BackendCall& call, Tensors& outputs, Tensors& inputs, InnerCall inner) override {
    if (call.type == OpType::BARRIER) return inner(outputs, inputs, call.timeout);
    const at::NoGradGuard no_grad;
    std::exception_ptr error;
    try {
      auto out = copies_of(outputs), in = copies_of(inputs);
      inner(out, in, call.timeout)->wait();
      for (size_t i = 0; i < outputs.size(); ++i) outputs[i].copy_(out[i]);
    } catch (const std::exception&) {
      error = std::current_exception();
    }
    return c10::make_intrusive<FinishedWork>(getRank(), call.type, ++number_, outputs, error);
  }

 private:
  static Tensors copies_of(const Tensors& tensors) {
    Tensors copies;
    for (const auto& tensor : tensors) copies.push_back(tensor.cpu());  // waits for the work of the GPU
    return copies;
  }

  std::atomic<uint64_t> number_{0};
};

// c10d keeps one backend of each type. UCC is a type that lockstep never uses otherwise.
void stage_gpu(Group& group, const GroupRequest& request) {
  if (!request.device.is_cuda()) return;
  group.setBackend(c10::kCUDA, Group::BackendType::UCC,
                   c10::make_intrusive<StagedBackend>(group.getBackend(c10::kCPU)));
}

template <Group::BackendType (*add)(Group&, const GroupRequest&)>
Group::BackendType add_staged(Group& group, const GroupRequest& request) {
  const auto type = add(group, request);
  stage_gpu(group, request);
  return type;
}

Group::BackendType add_mpi(Group& group, const GroupRequest& request) {
  return add_to_cpu(group, Group::BackendType::MPI,
                    c10::make_intrusive<MpiBackend>(std::make_shared<MpiLink>(request.mpi), request.monitor,
                                                    request.options.join_timeout, request.options.timeout),
                    request);
}

// As Python does without a named backend: tensors on the CPU go through gloo.
Group::BackendType add_nccl(Group& group, const GroupRequest& request) {
  const Job& job = request.job;
  add_gloo(group, request);
  if (request.spread == Spread::one) group.setBoundDeviceId(request.device);
  // both number their keys from 0, so each has its own part of the store, as in Python
  const auto store = c10::make_intrusive<c10d::PrefixStore>("cuda", request.store);
  std::vector<std::uint64_t> members;
  if (request.whole)
    for (const auto& peer : request.peers) members.push_back(static_cast<std::uint64_t>(peer.in_job));
  request.monitor->watch_nccl(request.name, request.options.timeout);
  group.setBackend(
      c10::kCUDA, Group::BackendType::NCCL,
      cuda().make_nccl({.store = store,
                        .rank = job.rank,
                        .world = job.world,
                        .device = request.device.index(),
                        .timeout = request.options.timeout,
                        .name = request.name,
                        .members = std::move(members),
                        .begin = [monitor = request.monitor](c10d::OpType type) { monitor->begin(type); },
                        .failed = [monitor = request.monitor](
                                      const std::string& what) { return monitor->diagnose_nccl(what); }}));
  return Group::BackendType::NCCL;
}

struct Kind {
  Group::BackendType type;
  OnSilence on_silence;
  Group::BackendType (*add)(Group& group, const GroupRequest& request);  // returns the type of the group
  void (*require)(const launch::Runtime& runtime, c10::Device device);   // before ranks wait for each other
  bool over_gloo;  // binds an address that other ranks must reach
};

void require_gloo(const launch::Runtime& runtime, c10::Device) {
  check_room_for_gloo(runtime.job());
}

void require_mpi(const launch::Runtime& runtime, c10::Device) {
  if (!runtime.has_mpi())
    throw InputError("the backend mpi needs MPI, but this job was started without MPI", "launch.backend",
                     "start the ranks with mpirun or srun --mpi=pmix, or choose gloo");
  require_threads();
}

void require_gpu(const launch::Runtime&, c10::Device device) {
  if (device.is_cuda() && device.has_index()) return;
  throw InputError(format("the backend nccl needs a GPU, and this rank's device is '{}'", device.str()),
                   "launch.backend",
                   "start on a node with GPUs (launch.device: auto or cuda), or set launch.backend to auto");
}

const std::map<std::string, Kind> kKinds = {
    {"shared",
     {Group::BackendType::GLOO, OnSilence::cut, add_staged<add_shared_or_gloo>, require_gloo, true}},
    {"gloo", {Group::BackendType::GLOO, OnSilence::cut, add_staged<add_gloo>, require_gloo, true}},
    {"mpi", {Group::BackendType::MPI, OnSilence::note, add_mpi, require_mpi, false}},
    {"nccl", {Group::BackendType::NCCL, OnSilence::cut_and_log, add_nccl, require_gpu, true}},
};

const Kind& find_kind(const launch::Runtime& runtime, const LaunchOptions& options, c10::Device device) {
  const auto found = kKinds.find(backend_for(runtime, options, device.is_cuda()));
  if (found != kKinds.end()) return found->second;
  throw InputError(format("there is no backend '{}'", options.backend), "launch.backend",
                   "choose auto, nccl, shared, gloo or mpi");
}

// Before ranks wait for each other.
void check_algorithm(const Kind& kind, const LaunchOptions& options) {
  if (!options.has_algorithm()) {
    if (options.latency_us == 0 && options.bandwidth_gbit == 0) return;
    throw InputError("a slow network can only be simulated with an all-reduce algorithm",
                     "launch.latency_us, launch.bandwidth_gbit",
                     "set launch.allreduce to an algorithm, for example ring");
  }
  const auto& algorithm = find_all_reduce(options.allreduce);
  if (kind.type != Group::BackendType::NCCL) return;
  throw InputError(format("the all-reduce {} runs on CPUs, but the backend is nccl", algorithm.name),
                   "launch.allreduce",
                   "leave launch.backend at auto, or set it to gloo or mpi; or set launch.allreduce to auto");
}

// A write to a dead peer must fail, not end this process. A handler of the program stays in place.
void ignore_sigpipe() {
  struct sigaction now {};
  ::sigaction(SIGPIPE, nullptr, &now);
  if (now.sa_handler == SIG_DFL) std::signal(SIGPIPE, SIG_IGN);
}

// A node that does not answer for this long is lost; LOCKSTEP_SILENCE (seconds) overrides it. The check uses
// TCP keepalive, which the node's kernel answers even during a long step.
std::chrono::milliseconds longest_silence_for(std::chrono::milliseconds timeout) {
  constexpr std::chrono::milliseconds kSilence{60'000};
  const auto seconds = launch::count_of(launch::current_environment(), "LOCKSTEP_SILENCE");
  return std::min(seconds ? std::chrono::seconds(*seconds) : kSilence, timeout);
}

// A program that has called join_ranks() itself has done this already.
void meet(launch::Runtime& runtime, std::chrono::milliseconds timeout) {
  if (runtime.has_mpi()) runtime.mpi().call_roll(timeout, launch::kJoin);
  if (!runtime.has_met()) join_ranks(runtime, timeout);
}

// MPI manages its own connections, so with MPI this watches those of the store, which lead to the same hosts.
std::shared_ptr<PeerMonitor> open_in(Group& group, const Kind& kind, GroupRequest request,
                                     const Connections& at_first) {
  const Job& job = request.job;
  request.monitor = std::make_shared<PeerMonitor>(request.store, request.peers, job.rank, request.whole);
  const Connections before = kind.on_silence == OnSilence::note ? at_first : connections();
  const auto added = kind.add(group, request);
  wait_until_all_are_connected(request.store, job, request.options.join_timeout);
  if (job.nodes > 1) {
    const auto longest_silence = longest_silence_for(request.options.timeout);
    request.monitor->watch(PeerConnections(since(before, connections()), longest_silence), kind.on_silence);
  }
  for (const auto& device : group.getDeviceTypes())
    request.monitor->keep_in_forks(group.getBackend(device.type()));
  group.setDefaultBackend(added);
  group.setGroupName(request.name);
  return request.monitor;
}

ProcessGroup open_group(const Kind& kind, GroupRequest request, const Connections& at_first) {
  auto group = c10::make_intrusive<Group>(request.store, request.job.rank, request.job.world);
  open_in(*group, kind, std::move(request), at_first);
  return group;
}

// The monitor that counts a group's collectives belongs to the backend for the CPU.
std::shared_ptr<PeerMonitor> monitor_of(const ProcessGroup& group) {
  for (const auto& device : group->getDeviceTypes()) {
    const auto* counted = dynamic_cast<const MonitoredBackend*>(group->getBackend(device.type()).get());
    if (counted) return counted->shared_monitor();
  }
  return nullptr;
}

// A group that the program made itself has none.
std::shared_ptr<PeerMonitor> require_monitor(const ProcessGroup& group) {
  if (auto monitor = monitor_of(group)) return monitor;
  throw InputError("lockstep did not create this process group", "process group",
                   "use the group of a lockstep::Session");
}

// The ranks of the part, renumbered.
std::vector<Peer> members_of(const std::vector<Peer>& everyone, const launch::Runtime& runtime, int part) {
  const auto parts = runtime.all_gather(std::to_string(part));
  std::vector<Peer> members;
  for (const auto& peer : everyone) {
    if (parts[static_cast<size_t>(peer.rank)] != std::to_string(part)) continue;
    members.push_back(peer);
    members.back().in_job = peer.rank;
    members.back().rank = static_cast<int>(members.size()) - 1;
  }
  return members;
}

int place_among(const std::vector<Peer>& members, int rank) {
  const auto own = [&](const Peer& peer) { return peer.in_job == rank; };
  return static_cast<int>(std::find_if(members.begin(), members.end(), own) - members.begin());
}

struct WithStore : c10d::ProcessGroup {  // getStore() exists since libtorch 2.8
  static StorePtr of(const c10d::ProcessGroup& group) { return group.*&WithStore::store_; }
};

}  // namespace

void read_debug_level() {
  try {
    c10d::setDebugLevelFromEnvironment();
  } catch (const std::exception&) {
    const auto given = launch::quote(launch::current_environment(), "TORCH_DISTRIBUTED_DEBUG");
    throw InputError(given + " is unknown", "environment", "set it to OFF, INFO or DETAIL");
  }
}

std::string backend_for(const launch::Runtime& runtime, const LaunchOptions& options, bool on_gpu) {
  const auto& asked = options.backend;
  const bool alone = runtime.job().world == 1 && !runtime.has_mpi();
  if (asked != "auto" && !(asked == "mpi" && alone)) return asked;
  if (on_gpu) return "nccl";
  const auto& job = runtime.job();
  const bool a_rank_each = job.nodes > 1 && job.nodes == job.world;  // no node has anything to share
  return a_rank_each || options.has_algorithm() ? "gloo" : "shared";
}

ProcessGroup connect(launch::Runtime& runtime, const LaunchOptions& options, c10::Device device,
                     Spread spread) {
  const QuietJoin quiet;
  const Job& job = runtime.job();
  const Kind& likely = find_kind(runtime, options, device);
  check_algorithm(likely, options);
  likely.require(runtime, device);
  longest_silence_for(options.timeout);  // reports a wrong variable before ranks wait
  meet(runtime, options.join_timeout);
  const Kind& kind = find_kind(runtime, options, device);  // now the layout of the nodes is known
  if (kind.over_gloo) check_gloo_interface(job);
  ignore_sigpipe();
  make_room_for_files(files_for(job));
  read_debug_level();
  const Connections at_first = connections();
  const StorePtr store = open_store(runtime, options.join_timeout);
  const auto comm = runtime.has_mpi() ? runtime.mpi().world() : mpi::Comm::null;
  return open_group(kind, {options, device, spread, store, job, introduce(runtime), comm}, at_first);
}

ProcessGroup split(launch::Runtime& runtime, const LaunchOptions& options, c10::Device device,
                   const ProcessGroup& whole, int part, const std::string& name, Spread spread) {
  const QuietJoin quiet;
  const Kind& kind = find_kind(runtime, options, device);
  const auto all = require_monitor(whole);
  const auto members = members_of(all->peers(), runtime, part);
  const auto comm = runtime.has_mpi() ? split_ranks(runtime.mpi().world(), part) : mpi::Comm::null;
  if (members.size() == 1) return {};
  Job job = runtime.job();
  job.rank = place_among(members, job.rank);
  job.world = static_cast<int>(members.size());
  const auto own_name = format("{}/{}", name, part);
  const auto store = c10::make_intrusive<c10d::PrefixStore>(own_name, all->store());
  return open_group(kind, {options, device, spread, store, job, members, comm, all, own_name}, connections());
}

void add_shared(const ProcessGroup& group, const std::vector<int64_t>& ranks_in_job,
                const LaunchOptions& options) {
  static auto* const job_monitor = new std::weak_ptr<const PeerMonitor>;  // of the group of all ranks
  const QuietJoin quiet;
  launch::Runtime runtime(Job{.rank = group->getRank(),
                              .world = group->getSize(),
                              .host = launch::read_host_facts({}).host,
                              .launcher = "python",
                              .guessed = {"local_rank", "local_world", "node_rank", "nodes"}});
  const Job& job = runtime.job();
  const Kind& kind = kKinds.at("shared");
  kind.require(runtime, c10::kCPU);
  const StorePtr store = join_in(runtime, WithStore::of(*group), options.join_timeout);
  check_gloo_interface(job);
  auto peers = introduce(runtime);
  for (size_t i = 0; i < ranks_in_job.size(); ++i) peers.at(i).in_job = static_cast<int>(ranks_in_job[i]);
  const bool is_part = !ranks_in_job.empty();
  GroupRequest request{options, c10::kCPU, Spread::one, store, job, peers};
  if (auto all = is_part ? job_monitor->lock() : nullptr; all && !all->is_dead()) request.whole = all;
  const auto monitor = open_in(*group, kind, std::move(request), connections());
  if (!is_part) *job_monitor = monitor;
}

int rank_in_job(const ProcessGroup& group, int rank) {
  const auto monitor = monitor_of(group);
  return monitor ? monitor->peers().at(static_cast<size_t>(rank)).rank_in_job() : rank;
}

std::exception_ptr judge_stall(const ProcessGroup& group, const std::string& what,
                               std::chrono::milliseconds limit) {
  return require_monitor(group)->diagnose_stall(what, limit);
}

std::unique_ptr<launch::StallWatch> watch_stalls(const ProcessGroup& group, const std::string& what,
                                                 std::chrono::milliseconds limit) {
  const auto misses_rank = [group] {
    const auto monitor = monitor_of(group);
    return monitor && monitor->misses_rank();
  };
  return std::make_unique<launch::StallWatch>(launch::StallWatch::Limits{limit, misses_rank}, [=] {
    std::rethrow_exception(judge_stall(group, what, limit));
  });
}

bool is_dead(const ProcessGroup& group) {
  const auto monitor = monitor_of(group);
  return monitor && monitor->is_dead();
}

}  // namespace lockstep::comm
