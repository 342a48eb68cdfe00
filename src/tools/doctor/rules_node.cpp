// Rules about each node: its host name, memory, /dev/shm, limits, container and signals.
#include <algorithm>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/meet/network.h"
#include "tools/doctor/rules.h"

namespace lockstep::doctor {
namespace {

constexpr auto kWarn = FindingLevel::warning, kFail = FindingLevel::failure;
constexpr long long kMiB = 1 << 20, kGiB = 1 << 30;
constexpr long long kLittleMemory = kGiB, kTooLittleMemory = 256 * kMiB;  // for a rank
constexpr long long kSmallShm = 128 * kMiB;                               // a container's default is 64
constexpr const char* kMoreShm =
    "docker run --ipc=host, or --shm-size=1g; otherwise remove what dead processes left there";
constexpr const char* kMoreMemory =
    "ask for more memory (--mem, -l mem=) or start fewer ranks a node; is another program running there?";
constexpr const char* kResolve =
    "add it to /etc/hosts or DNS; with GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME it is not needed";

bool below(long long value, long long bound) {
  return value >= 0 && value < bound;
}

std::string text_of(const Memory& memory) {
  std::string text = format("{} available of {}", bytes_text(memory.available), bytes_text(memory.total));
  if (memory.limit >= 0)
    text +=
        format(", {} of {} used ({})", bytes_text(memory.used), bytes_text(memory.limit), memory.limit_file);
  return text + format(", swap {}", memory.swap == 0 ? "none" : bytes_text(memory.swap));
}

// Of each rank; -1 = not known.
long long memory_share(const Machine& machine) {
  const Memory& memory = machine.front()->memory;
  long long room = memory.available;
  if (memory.limit >= 0) {
    const long long left = std::max(0LL, memory.limit - std::max(0LL, memory.used));
    room = room < 0 ? left : std::min(room, left);
  }
  return room < 0 ? -1 : room / static_cast<long long>(machine.size());
}

Problems memory_between(const Machine& machine, long long least, long long bound) {
  const long long share = memory_share(machine);
  if (share < least || share >= bound) return {};
  return {{format("{} for each of {} ({})", bytes_text(share), counted(machine.size(), "rank"),
                  text_of(machine.front()->memory))}};
}

Problems broken_shm(const Machine& machine) {
  const Memory& first = machine.front()->memory;
  for (const RankFacts* facts : machine) {
    if (!facts->memory.shm_error.empty())
      return {
          {format("{}; {} of {} are free there", facts->memory.shm_error,
                  bytes_text(std::max(0LL, first.shm_free)), bytes_text(std::max(0LL, first.shm_total)))}};
    if (facts->memory.shm_device != first.shm_device)
      return {{"the ranks of this machine have different /dev/shm and cannot share memory",
               "start them in one container, or with --ipc=host"}};
  }
  return {};
}

Problems few_files(const RankFacts& facts, const Cluster&) {
  const auto needed = static_cast<long long>(comm::files_for(facts.job));
  const long long hard = facts.limits.files.hard;
  if (!below(hard, needed)) return {};
  return {{format("a process may open {} files, and {} need{} {}", hard,
                  counted(static_cast<size_t>(facts.job.world), "rank"), facts.job.world == 1 ? "s" : "",
                  needed)}};
}

struct LeastLimit {
  Limit ProcessLimits::*limit;
  const char* what;
  const char* option;
  long long bound;
  const char* why;
};

constexpr LeastLimit kLeast[] = {
    {&ProcessLimits::stack, "a stack", "-s", 1 * kMiB, "libtorch and MPI need more"},
    {&ProcessLimits::processes, "processes of a user", "-u", 256,
     "each rank has a dozen threads, which count"},
    {&ProcessLimits::memory, "a process's address space", "-v", 64 * kGiB, "CUDA alone reserves more"},
};

Problems low_limits(const RankFacts& facts, const Cluster&) {
  Problems problems;
  for (const LeastLimit& row : kLeast) {
    const long long soft = (facts.limits.*row.limit).soft;
    const bool is_count = row.limit == &ProcessLimits::processes;
    if (below(soft, row.bound))
      problems.push_back(
          {format("{}: at most {}; {}", row.what, is_count ? std::to_string(soft) : bytes_text(soft),
                  row.why),
           format("ulimit {} unlimited before the program, or ask the administrators", row.option)});
  }
  return problems;
}

Problems unresolved(const RankFacts& facts, const Cluster& cluster, bool is_needed) {
  const bool needed = machines_of(cluster).size() > 1 && !facts.variables.contains("GLOO_SOCKET_IFNAME");
  if (facts.host_error.empty() || needed != is_needed) return {};
  return {{format("the host's name {} does not resolve: {}", facts.job.host, facts.host_error)}};
}

Problems driver_outside(const RankFacts& facts, const Cluster&) {
  const Walls& walls = facts.walls;
  if (walls.cuda_library || !(walls.nvidia_devices || walls.nvidia_kernel) || facts.wanted == "cpu")
    return {};
  if (walls.container.empty())
    return {{"this node has GPUs, but the driver's library (libcuda.so.1) is missing",
             "install the driver's library, or add its folder to LD_LIBRARY_PATH"}};
  return {{format("this node has GPUs, but the {} container lacks the driver's library (libcuda.so.1)",
                  walls.container)}};
}

std::string host_text(const Cluster& cluster) {
  const RankFacts& first = cluster.ranks.front();
  return format("{} is {}", first.job.host, base::join(first.host_addresses, ", "));
}

std::string memory_text(const Cluster& cluster) {
  return text_of(cluster.ranks.front().memory);
}

std::string shm_text(const Cluster& cluster) {
  const Memory& memory = cluster.ranks.front().memory;
  return format("/dev/shm: {} free of {}", bytes_text(memory.shm_free), bytes_text(memory.shm_total));
}

std::string limits_text(const Cluster& cluster) {
  const ProcessLimits& limits = cluster.ranks.front().limits;
  return format("files {} (hard {}), locked {}, stack {}, core {}", limits.files.soft, limits.files.hard,
                bytes_text(limits.locked.soft), bytes_text(limits.stack.soft), bytes_text(limits.core.soft));
}

std::string container_text(const Cluster& cluster) {
  const auto& container = cluster.ranks.front().walls.container;
  return container.empty() ? "none detected" : container;
}

const Check kNodeChecks[] = {
    {"host", host_text},
    {"memory", memory_text},
    {"shm", shm_text},
    {"limits", limits_text},
    {"container", container_text},
    {"signals",
     [](const Cluster&) { return std::string("SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 reach the ranks"); }},
};

const Rule kNodeRules[] = {
    {"host", kFail, [](const RankFacts& facts, const Cluster& all) { return unresolved(facts, all, true); },
     kResolve},
    {"host", kWarn, [](const RankFacts& facts, const Cluster& all) { return unresolved(facts, all, false); },
     kResolve},
    {"memory", kFail, [](const Machine& machine) { return memory_between(machine, 0, kTooLittleMemory); },
     kMoreMemory},
    {"memory", kWarn,
     [](const Machine& machine) { return memory_between(machine, kTooLittleMemory, kLittleMemory); },
     kMoreMemory},
    {"shm", kFail, broken_shm, kMoreShm},
    {"shm", kWarn,
     [](const Machine& machine) {
       const Memory& memory = machine.front()->memory;
       if (!broken_shm(machine).empty() || memory.shm_free >= kSmallShm) return Problems();
       return Problems{{format("/dev/shm has {} free of {}; NCCL takes about 10 MiB for each pair of ranks",
                               bytes_text(memory.shm_free), bytes_text(memory.shm_total))}};
     },
     kMoreShm},
    {"limits", kFail, few_files, "raise the hard limit (ulimit -Hn, limits.conf), or choose the backend mpi"},
    {"limits", kWarn,
     [](const RankFacts& facts, const Cluster& all) {
       const long long hard = facts.limits.files.hard;
       if (!below(hard, 1024) || !few_files(facts, all).empty()) return Problems();
       return Problems{{format("a process may open {} files", hard)}};
     },
     "raise the hard limit: ulimit -Hn"},
    {"limits", kWarn, low_limits, ""},
    {"limits", kWarn,
     [](const RankFacts& facts, const Cluster&) {
       if (!facts.walls.infiniband || !below(facts.limits.locked.soft, kGiB)) return Problems();
       return Problems{{format("locked memory: at most {}, and InfiniBand locks what it sends",
                               bytes_text(facts.limits.locked.soft))}};
     },
     "ulimit -l unlimited; for Slurm: PropagateResourceLimitsExcept=MEMLOCK"},
    {"container", kWarn, driver_outside, "docker run --gpus all; apptainer exec --nv"},
    {"signals", kFail,
     [](const RankFacts& facts, const Cluster&) {
       const auto& blocked = facts.walls.blocked_signals;
       if (blocked.empty()) return Problems();
       return Problems{{format("{} {} blocked: at the job's end a run would write no checkpoint",
                               base::join(blocked, ", "), blocked.size() == 1 ? "is" : "are")}};
     },
     "the process that starts the program blocks them: look at the script, wrapper or MPI before it"},
};

}  // namespace

Subject node_subject() {
  return {kNodeChecks, kNodeRules};
}

}  // namespace lockstep::doctor
