// Rules about each node and what its ranks compute on.
#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "lockstep/base/format.h"
#include "lockstep/comm/rendezvous/network.h"
#include "lockstep/launch/process/cpus.h"
#include "lockstep/launch/process/report.h"
#include "tools/doctor/doctor.h"

namespace lockstep::doctor {
namespace {

using launch::masks_overlap;

constexpr long long kMiB = 1 << 20, kGiB = 1 << 30;

std::vector<int> numbers_of(const Machine& machine) {
  std::vector<int> ranks;
  for (const RankFacts* facts : machine) ranks.push_back(facts->job.rank);
  return ranks;
}

// "rank 3", "ranks 0 and 1", "ranks 0-2,5"
std::string ranks_in(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return format("rank {}", ranks.front());
  if (ranks.size() == 2) return format("ranks {} and {}", ranks[0], ranks[1]);
  return "ranks " + launch::ranges(ranks);
}

// --- cores and threads ---

size_t cpus_of(const Machine& machine) {
  std::set<int> all;
  for (const RankFacts* facts : machine)
    for (const int cpu : cpus_in(facts->cores.mask)) all.insert(cpu);
  return all.size();
}

// The ranks that share a core with a rank of another mask, or have fewer CPUs than ranks of this mask.
Machine crowded_ranks(const Machine& machine) {
  Machine crowded;
  for (const RankFacts* one : machine) {
    const auto is_in_its_way = [&](const RankFacts* other) {
      return other->cores.mask != one->cores.mask && masks_overlap(other->cores.whole, one->cores.whole);
    };
    const auto alike = std::ranges::count_if(
        machine, [&](const RankFacts* other) { return other->cores.mask == one->cores.mask; });
    if (std::ranges::any_of(machine, is_in_its_way) || alike > std::ssize(cpus_in(one->cores.mask)))
      crowded.push_back(one);
  }
  return crowded;
}

Findings crowded_cores(const Machine& machine) {
  const Machine crowded = crowded_ranks(machine);
  if (crowded.empty()) return {};
  std::set<std::string> masks;
  for (const RankFacts* facts : crowded) masks.insert(facts->cores.mask);
  const auto ranks = ranks_in(numbers_of(crowded));
  if (masks.size() == 1)
    return {{format("{} share {} (CPU {})", ranks, counted(cpus_of(crowded), "CPU"), *masks.begin())}};
  return {{format("{} are bound to cores that they share (CPUs {})", ranks,
                  base::join({masks.begin(), masks.end()}, " and "))}};
}

// In a batch job the other cores may be another job's.
Findings idle_cores(const Machine& machine) {
  const RankFacts& first = *machine.front();
  std::map<std::string, int> cores_by_mask;
  for (const RankFacts* facts : machine) cores_by_mask[facts->cores.mask] = facts->cores.cores;
  int used = 0;
  for (const auto& [mask, cores] : cores_by_mask) used += cores;
  if (first.job.scheduler != "none" || machine.size() < 2 || used * 2 > first.cores.machine_cores) return {};
  if (!crowded_cores(machine).empty()) return {};
  return {
      {format("{} may use {} of {} cores", ranks_in(numbers_of(machine)), used, first.cores.machine_cores)}};
}

launch::ThreadShare share_of(const RankFacts& facts, const Cluster& cluster) {
  const Cores& cores = facts.cores;
  const auto quota =
      cores.quota > 0 ? std::optional(launch::CpuQuota{cores.quota, cores.quota_file}) : std::nullopt;
  const auto sharers = std::ranges::count_if(cluster.ranks, [&](const RankFacts& other) {
    return other.machine == facts.machine && masks_overlap(other.cores.mask, cores.mask);
  });
  return launch::choose_threads(facts.job, facts.variables, {cores.mask, cores.cores, cores.machine_cores},
                                static_cast<int>(sharers), quota);
}

Findings too_many_threads(const RankFacts& facts, const Cluster& cluster) {
  const auto share = share_of(facts, cluster);
  return share.warnings.empty() ? Findings() : Findings{{share.warnings.front()}};
}

std::string cores_text(const Cluster& cluster) {
  const Cores& cores = cluster.ranks.front().cores;
  return format("{} may use {} of {} cores{}", cluster.ranks.size() == 1 ? "this rank" : "rank 0",
                cores.cores, cores.machine_cores,
                cores.quota > 0 ? format(", {:.2g} cores' time by {}", cores.quota, cores.quota_file) : "");
}

std::string threads_text(const Cluster& cluster) {
  const auto share = share_of(cluster.ranks.front(), cluster);
  return format("{} per rank ({})", share.threads, share.because);
}

// --- GPUs ---

const Gpu* own_gpu(const RankFacts& facts) {
  const auto index = static_cast<size_t>(facts.gpu);
  return facts.gpu >= 0 && index < facts.gpus.size() ? &facts.gpus[index] : nullptr;
}

using RanksBy = std::map<std::string, std::vector<int>>;

// "A on rank 0, B on ranks 1 and 2"
std::string text_of(const RanksBy& kinds) {
  std::vector<std::string> parts;
  for (const auto& [name, ranks] : kinds) parts.push_back(format("{} on {}", name, ranks_in(ranks)));
  return base::join(parts, ", ");
}

// The parts of a divided GPU (MIG) have a UUID each and one bus address. NCCL accepts one rank of them.
Findings shared_gpus(const Cluster& cluster) {
  RanksBy ranks_by_bus;
  std::map<std::string, std::set<std::string>> uuids_by_bus;
  for (const RankFacts& facts : cluster.ranks) {
    const Gpu* gpu = own_gpu(facts);
    if (!gpu || gpu->bus.empty()) continue;
    const auto bus = format("{} on node {}", gpu->bus, facts.job.node_rank);
    ranks_by_bus[bus].push_back(facts.job.rank);
    uuids_by_bus[bus].insert(gpu->uuid);
  }
  Findings problems;
  for (const auto& [bus, ranks] : ranks_by_bus) {
    if (ranks.size() < 2) continue;
    const bool has_parts = uuids_by_bus[bus].size() > 1;
    problems.push_back(
        {format("{} use {} ({})", ranks_in(ranks), has_parts ? "parts (MIG) of one GPU" : "one GPU", bus)});
  }
  return problems;
}

Findings no_device(const RankFacts& facts, const Cluster&) {
  return facts.device_error.empty() ? Findings() : Findings{{facts.device_error}};
}

// Only if nothing worse is wrong.
Findings mixed_gpus(const Cluster& cluster) {
  RanksBy kinds;
  for (const RankFacts& facts : cluster.ranks) {
    if (!facts.device_error.empty()) return {};
    const Gpu* gpu = own_gpu(facts);
    kinds[gpu ? gpu->name : "none"].push_back(facts.job.rank);
  }
  if (kinds.size() < 2 || !shared_gpus(cluster).empty()) return {};
  const auto says = "the ranks' GPUs differ: " + text_of(kinds);
  if (!kinds.contains("none")) return {{says}};
  return {{says,
           "request GPUs on every node, or set launch.device to cpu: some ranks would train on CPUs while "
           "the others wait",
           kFailure}};
}

Findings far_from_gpu(const RankFacts& facts, const Cluster&) {
  const Gpu* gpu = own_gpu(facts);
  if (!gpu || gpu->near.empty() || masks_overlap(gpu->near, facts.cores.mask)) return {};
  return {{format("cuda:{} is close to CPUs {}, but the rank may only use {}", facts.gpu, gpu->near,
                  facts.cores.mask)}};
}

// "sm_90" runs on 9.0 and later of its generation, "sm_90a" on 9.0 only, "compute_90" on 9.0 and all later
bool runs_on(const std::string& architecture, const Gpu& gpu) {
  const auto line = architecture.find('_');
  if (line == std::string::npos) return false;
  const int number = std::atoi(architecture.c_str() + line + 1), own = gpu.major * 10 + gpu.minor;
  if (std::isalpha(static_cast<unsigned char>(architecture.back()))) return number == own;
  if (architecture.starts_with("compute_")) return number <= own;
  return number / 10 == gpu.major && number <= own;
}

Findings unsupported_gpu(const RankFacts& facts, const Cluster&) {
  const Gpu* gpu = own_gpu(facts);
  if (!gpu || gpu->major == 0 || facts.torch_archs.empty()) return {};
  if (std::ranges::any_of(facts.torch_archs, [&](const auto& name) { return runs_on(name, *gpu); }))
    return {};
  return {{format("libtorch was built for {}, but {} is sm_{}{}", base::join(facts.torch_archs, " "),
                  gpu->name, gpu->major, gpu->minor)}};
}

Findings driver_outside(const RankFacts& facts, const Cluster&) {
  if (facts.cuda_library || !facts.nvidia_driver || facts.wanted == "cpu") return {};
  if (facts.container.empty())
    return {{"this node has GPUs, but the driver's library (libcuda.so.1) is missing",
             "install the driver's library, or add its folder to LD_LIBRARY_PATH"}};
  return {{format("this node has GPUs, but the {} container lacks the driver's library (libcuda.so.1)",
                  facts.container)}};
}

std::string gpus_text(const Cluster& cluster) {
  const RankFacts& first = cluster.ranks.front();
  const Gpu* gpu = own_gpu(first);
  if (first.wanted == "cpu") return "not used: the device is cpu";
  return gpu ? "one per rank: " + gpu->name : "none, ranks compute on the CPU: " + first.gpus_because;
}

// --- libtorch on the processor ---

Findings unused_instructions(const RankFacts& facts, const Cluster&) {
  const std::string& used = facts.cpu_capability;
  if (!facts.has_avx2 || used == "AVX2" || used == "AVX512") return {};
  return {{format("libtorch computes without AVX2 ({}), which this processor has", used)}};
}

Findings uneven_instructions(const Cluster& cluster) {
  RanksBy kinds;
  for (const RankFacts& facts : cluster.ranks) kinds[facts.cpu_capability].push_back(facts.job.rank);
  if (kinds.size() < 2) return {};
  return {{"libtorch uses different instructions on the ranks: " + text_of(kinds)}};
}

std::string libtorch_text(const Cluster& cluster) {
  const RankFacts& facts = cluster.ranks.front();
  return format("CPU capability {}{}", facts.cpu_capability,
                facts.torch_archs.empty() ? "" : ", GPUs " + base::join(facts.torch_archs, " "));
}

// --- host name, memory, limits, signals ---

Findings unresolved(const RankFacts& facts, const Cluster& cluster) {
  if (facts.host_error.empty()) return {};
  const bool is_needed = machines_of(cluster).size() > 1 && !facts.variables.contains("GLOO_SOCKET_IFNAME");
  return {{format("the host's name {} does not resolve: {}", facts.job.host, facts.host_error), "",
           is_needed ? kFailure : kWarning}};
}

std::string host_text(const Cluster& cluster) {
  const RankFacts& first = cluster.ranks.front();
  return format("{} is {}", first.job.host, base::join(first.host_addresses, ", "));
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

Findings little_memory(const Machine& machine) {
  constexpr long long kLittle = kGiB, kTooLittle = 256 * kMiB;  // for a rank
  const long long share = memory_share(machine);
  if (share < 0 || share >= kLittle) return {};
  return {{format("{} for each of {} ({})", bytes_text(share), counted(machine.size(), "rank"),
                  text_of(machine.front()->memory)),
           "", share < kTooLittle ? kFailure : kWarning}};
}

Findings shm_problems(const Machine& machine) {
  constexpr long long kSmall = 128 * kMiB;  // a container's default is 64
  const Memory& first = machine.front()->memory;
  for (const RankFacts* facts : machine) {
    if (!facts->memory.shm_error.empty())
      return {{format("{}; {} of {} are free there", facts->memory.shm_error,
                      bytes_text(std::max(0LL, first.shm_free)), bytes_text(std::max(0LL, first.shm_total))),
               "", kFailure}};
    if (facts->memory.shm_device != first.shm_device)
      return {{"the ranks of this machine have different /dev/shm and cannot share memory",
               "start them in one container, or with --ipc=host", kFailure}};
  }
  if (first.shm_free >= kSmall) return {};
  return {{format("/dev/shm has {} free of {}; NCCL takes about 10 MiB for each pair of ranks",
                  bytes_text(first.shm_free), bytes_text(first.shm_total))}};
}

std::string shm_text(const Cluster& cluster) {
  const Memory& memory = cluster.ranks.front().memory;
  return format("/dev/shm: {} free of {}", bytes_text(memory.shm_free), bytes_text(memory.shm_total));
}

bool below(long long value, long long bound) {
  return value >= 0 && value < bound;
}

Findings few_files(const RankFacts& facts, const Cluster&) {
  const auto needed = static_cast<long long>(comm::files_for(facts.job));
  const long long hard = facts.limits.files.hard;
  if (!below(hard, needed)) return {};
  return {{format("a process may open {} files, and {} need{} {}", hard, counted(facts.job.world, "rank"),
                  facts.job.world == 1 ? "s" : "", needed)}};
}

struct LeastLimit {
  Limit ProcessLimits::*limit;
  long long bound;
  const char *what, *option, *why;
};

constexpr LeastLimit kLeast[] = {
    {&ProcessLimits::stack, 1 * kMiB, "a stack", "-s", "libtorch and MPI need more"},
    {&ProcessLimits::processes, 256, "processes of a user", "-u",
     "each rank has a dozen threads, which count as processes"},
    {&ProcessLimits::memory, 64 * kGiB, "a process's address space", "-v", "CUDA alone reserves more"},
};

Findings low_limits(const RankFacts& facts, const Cluster&) {
  Findings problems;
  for (const LeastLimit& row : kLeast) {
    const long long soft = (facts.limits.*row.limit).soft;
    const bool is_count = row.limit == &ProcessLimits::processes;
    if (below(soft, row.bound))
      problems.push_back(
          {format("{}: at most {}; {}", row.what, is_count ? std::to_string(soft) : bytes_text(soft),
                  row.why),
           format("run ulimit {} unlimited before the program, or ask the administrators", row.option)});
  }
  return problems;
}

Findings little_locked_memory(const RankFacts& facts, const Cluster&) {
  if (!facts.infiniband || !below(facts.limits.locked.soft, kGiB)) return {};
  return {{format("locked memory: at most {}, but InfiniBand locks what it sends",
                  bytes_text(facts.limits.locked.soft))}};
}

std::string limits_text(const Cluster& cluster) {
  const ProcessLimits& limits = cluster.ranks.front().limits;
  return format("files {} (hard {}), locked {}, stack {}", limits.files.soft, limits.files.hard,
                bytes_text(limits.locked.soft), bytes_text(limits.stack.soft));
}

Findings blocked_signals(const RankFacts& facts, const Cluster&) {
  const auto& blocked = facts.blocked_signals;
  if (blocked.empty()) return {};
  return {{format("{} {} blocked: at the job's end a run would write no checkpoint",
                  base::join(blocked, ", "), blocked.size() == 1 ? "is" : "are")}};
}

}  // namespace

std::vector<Check> node_checks() {
  return {
      {"cores",
       {{kWarning, crowded_cores,
         "give each rank its own cores: srun --cpu-bind=cores, mpirun --bind-to core --map-by slot:PE=N; "
         "check that taskset does not start the program"},
        {kWarning, idle_cores,
         "use mpirun --bind-to none, or --map-by slot:PE=N: by default it binds each rank to one core"}},
       cores_text},
      {"threads",
       {{kWarning, too_many_threads,
         "set OMP_NUM_THREADS to the share, or unset it: lockstep uses the share by default"}},
       threads_text},
      {"locality",
       {{kWarning, far_from_gpu,
         "bind ranks close to their GPUs: srun --gpu-bind=closest, or a --cpu-bind map"}},
       [](const Cluster& cluster) -> std::string {
         return own_gpu(cluster.ranks.front()) ? "each rank may use CPUs close to its GPU" : "no GPU is used";
       }},
      {"gpus",
       {{kFailure, shared_gpus,
         "request one GPU per rank (--gpus-per-node, ngpus=), start fewer ranks per node, or train on CPUs: "
         "launch.device=cpu"},
        {kFailure, no_device, "request as many GPUs per node as ranks, or set launch.device to cpu"},
        {kWarning, mixed_gpus, "request nodes of one kind (-C, gpu_type): every step waits for the slowest"}},
       gpus_text},
      {"libtorch",
       {{kWarning, uneven_instructions,
         "request nodes of one kind, and set ATEN_CPU_CAPABILITY on all ranks or none: speeds and last bits "
         "differ"},
        {kFailure, unsupported_gpu, "build with a libtorch for this GPU (docs/how-to/install.md)"},
        {kWarning, unused_instructions, "unset ATEN_CPU_CAPABILITY"}},
       libtorch_text},
      {"host",
       {{kWarning, unresolved,
         "add it to /etc/hosts or DNS, or set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME"}},
       host_text},
      {"memory",
       {{kWarning, little_memory,
         "request more memory (--mem, -l mem=), start fewer ranks per node, or check for other programs "
         "there"}},
       [](const Cluster& cluster) { return text_of(cluster.ranks.front().memory); }},
      {"shm",
       {{kWarning, shm_problems,
         "start the container with --ipc=host or --shm-size=1g; otherwise remove what dead processes left "
         "there"}},
       shm_text},
      {"limits",
       {{kFailure, few_files, "raise the hard limit (ulimit -Hn, limits.conf), or choose the backend mpi"},
        {kWarning, low_limits, ""},
        {kWarning, little_locked_memory,
         "run ulimit -l unlimited; for Slurm set PropagateResourceLimitsExcept=MEMLOCK"}},
       limits_text},
      {"container",
       {{kWarning, driver_outside, "start the container with docker run --gpus all, or apptainer exec --nv"}},
       [](const Cluster& cluster) {
         const auto& container = cluster.ranks.front().container;
         return container.empty() ? "none detected" : container;
       }},
      {"signals",
       {{kFailure, blocked_signals,
         "check the script, wrapper or MPI that starts the program: it blocks them"}},
       [](const Cluster&) { return std::string("SIGTERM, SIGINT, SIGUSR1 and SIGUSR2 reach the ranks"); }}};
}

}  // namespace lockstep::doctor
