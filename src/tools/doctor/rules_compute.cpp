// Rules about what the ranks compute on: cores, threads, NUMA nodes, GPUs, and what libtorch uses of them.
#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "lockstep/base/format.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/process/cpus.h"
#include "tools/doctor/rules.h"

namespace lockstep::doctor {
namespace {

using launch::masks_overlap;

constexpr auto kBad = FindingLevel::failure, kPoor = FindingLevel::warning;

// --- cores ---

const std::string& cores_of(const RankFacts& facts) {
  return facts.cores.whole.empty() ? facts.cores.mask : facts.cores.whole;
}

// Ranks that share cores, each with all that it overlaps.
std::vector<Machine> groups_that_share(const Machine& machine) {
  std::vector<Machine> groups;
  for (const RankFacts* facts : machine) {
    Machine group = {facts};
    std::erase_if(groups, [&](const Machine& other) {
      const bool meets = std::ranges::any_of(
          other, [&](const RankFacts* member) { return masks_overlap(cores_of(*member), cores_of(*facts)); });
      if (meets) group.insert(group.begin(), other.begin(), other.end());
      return meets;
    });
    groups.push_back(group);
  }
  return groups;
}

// "0-3,8"
void add_threads(std::set<int>& threads, const std::string& mask) {
  for (const auto& part : base::split(mask, ',')) {
    const int first = std::atoi(part.c_str());
    const auto dash = part.find('-');
    const int last = dash == std::string::npos ? first : std::atoi(part.c_str() + dash + 1);
    if (part.empty()) continue;
    for (int thread = first; thread <= last; ++thread) threads.insert(thread);
  }
}

// Hardware threads of all, and the sum over the ranks of each one's own.
std::pair<size_t, size_t> threads_of(const Machine& machine) {
  std::set<int> all;
  size_t sum = 0;
  for (const RankFacts* facts : machine) {
    std::set<int> own;
    add_threads(own, facts->cores.mask);
    add_threads(all, facts->cores.mask);
    sum += own.size();
  }
  return {all.size(), sum};
}

std::string masks_text(const Machine& machine) {
  std::vector<std::string> masks;
  for (const RankFacts* facts : machine) masks.push_back(facts->cores.mask);
  return base::join(masks, " and ");
}

Problems crowded_cores(const Machine& machine) {
  Problems problems;
  for (const Machine& group : groups_that_share(machine)) {
    const auto [threads, sum] = threads_of(group);
    const bool same = std::ranges::all_of(
        group, [&](const RankFacts* facts) { return facts->cores.mask == group.front()->cores.mask; });
    if (group.size() < 2 || (same && threads >= group.size())) continue;
    if (threads < group.size())
      problems.push_back({format("{} have {} to share ({})", ranks_in(group), counted(threads, "CPU"),
                                 group.front()->cores.mask)});
    else if (threads == sum)
      problems.push_back({format("{} are bound to hardware threads of the same cores ({})", ranks_in(group),
                                 masks_text(group))});
    else
      problems.push_back(
          {format("{} are bound to CPUs that overlap ({})", ranks_in(group), masks_text(group))});
  }
  return problems;
}

// In a batch job the other CPUs may be another job's.
Problems idle_cores(const Machine& machine) {
  const RankFacts& first = *machine.front();
  const size_t used = threads_of(machine).first, all = static_cast<size_t>(first.cores.machine_threads);
  if (first.job.scheduler != "none" || machine.size() < 2 || used * 2 > all) return {};
  if (!crowded_cores(machine).empty()) return {};
  return {{format("{} may use {} of {} CPUs", ranks_in(machine), used, all)}};
}

// --- threads and locality ---

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

Problems too_many_threads(const RankFacts& facts, const Cluster& cluster) {
  const auto share = share_of(facts, cluster);
  return share.warnings.empty() ? Problems() : Problems{{share.warnings.front()}};
}

Problems far_from_gpu(const RankFacts& facts, const Cluster&) {
  if (facts.gpu < 0 || static_cast<size_t>(facts.gpu) >= facts.cores.gpu_near.size()) return {};
  const std::string& near = facts.cores.gpu_near[static_cast<size_t>(facts.gpu)];
  if (near.empty() || masks_overlap(near, facts.cores.mask)) return {};
  return {{format("cuda:{} is close to CPUs {}, and the rank may only use {}", facts.gpu, near,
                  facts.cores.mask)}};
}

std::string numa_row(const std::string& numa, size_t index, const Machine& machine) {
  std::vector<int> ranks;
  std::vector<std::string> gpus;
  for (const RankFacts* facts : machine) {
    if (masks_overlap(facts->cores.mask, numa)) ranks.push_back(facts->job.rank);
    const auto gpu = static_cast<size_t>(facts->gpu);
    if (facts->gpu >= 0 && gpu < facts->cores.gpu_near.size() &&
        masks_overlap(facts->cores.gpu_near[gpu], numa))
      gpus.push_back(format("{} (rank {})", facts->gpus.at(gpu).bus, facts->job.rank));
  }
  return format("{}  NUMA {}  CPUs {:<12}  {}{}\n", machine.front()->job.host, index, numa,
                ranks.empty() ? "no rank" : ranks_in(ranks),
                gpus.empty() ? "" : "  GPU " + base::join(gpus, ", "));
}

// --- GPUs ---

const Gpu* own_gpu(const RankFacts& facts) {
  return facts.gpu >= 0 && static_cast<size_t>(facts.gpu) < facts.gpus.size()
             ? &facts.gpus[static_cast<size_t>(facts.gpu)]
             : nullptr;
}

using RanksBy = std::map<std::string, std::vector<int>>;

// "A on rank 0, B on ranks 1 and 2"
std::string text_of(const RanksBy& kinds) {
  std::vector<std::string> parts;
  for (const auto& [name, ranks] : kinds) parts.push_back(format("{} on {}", name, ranks_in(ranks)));
  return base::join(parts, ", ");
}

// The parts of a divided GPU (MIG) have a UUID each and one bus; NCCL accepts one rank of them.
Problems shared_gpus(const Cluster& cluster) {
  RanksBy by_uuid, by_bus;
  for (const RankFacts& facts : cluster.ranks) {
    const Gpu* gpu = own_gpu(facts);
    if (!gpu || gpu->uuid.empty()) continue;
    by_uuid[gpu->uuid].push_back(facts.job.rank);
    if (!gpu->bus.empty())
      by_bus[format("{} on node {}", gpu->bus, facts.job.node_rank)].push_back(facts.job.rank);
  }
  const auto problems_in = [](const RanksBy& ranks_of, const char* what) {
    Problems problems;
    for (const auto& [name, ranks] : ranks_of)
      if (ranks.size() > 1) problems.push_back({format("{} use {} ({})", ranks_in(ranks), what, name)});
    return problems;
  };
  const auto same = problems_in(by_uuid, "one GPU");
  return same.empty() ? problems_in(by_bus, "parts (MIG) of one GPU") : same;
}

Problems no_device(const RankFacts& facts, const Cluster&) {
  return facts.device_error.empty() ? Problems() : Problems{{facts.device_error}};
}

// Where nothing worse is wrong.
Problems mixed_gpus(const Cluster& cluster, bool some_without) {
  RanksBy kinds;
  for (const RankFacts& facts : cluster.ranks) {
    if (!facts.device_error.empty()) return {};
    const Gpu* gpu = own_gpu(facts);
    kinds[gpu ? gpu->name : "none"].push_back(facts.job.rank);
  }
  if (kinds.size() < 2 || kinds.contains("none") != some_without || !shared_gpus(cluster).empty()) return {};
  return {{"the ranks' GPUs differ: " + text_of(kinds)}};
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

Problems unsupported_gpu(const RankFacts& facts, const Cluster&) {
  const Gpu* gpu = own_gpu(facts);
  if (!gpu || gpu->major == 0 || facts.torch_archs.empty()) return {};
  if (std::ranges::any_of(facts.torch_archs, [&](const auto& name) { return runs_on(name, *gpu); }))
    return {};
  return {{format("libtorch was built for {}, and {} is sm_{}{}", base::join(facts.torch_archs, " "),
                  gpu->name, gpu->major, gpu->minor)}};
}

// --- libtorch on the processor ---

Problems unused_instructions(const RankFacts& facts, const Cluster&) {
  const auto has = [&](const char* flag) { return std::ranges::count(facts.cpu_flags, flag) > 0; };
  const std::string& used = facts.cpu_capability;
  if (has("avx2") && used != "AVX2" && used != "AVX512")
    return {{format("libtorch computes without AVX2 ({}), which this processor has", used)}};
  if (has("avx512f") && used != "AVX512" && facts.variables.contains("ATEN_CPU_CAPABILITY"))
    return {{format("libtorch computes with {}, and this processor has AVX-512", used)}};
  if (!has("avx2") && !facts.cpu_flags.empty())
    return {{"this processor has no AVX2", "training on its cores is slow; ask for newer nodes"}};
  return {};
}

Problems uneven_instructions(const Cluster& cluster) {
  RanksBy kinds;
  for (const RankFacts& facts : cluster.ranks) kinds[facts.cpu_capability].push_back(facts.job.rank);
  if (kinds.size() < 2) return {};
  return {{"libtorch uses different instructions on the ranks: " + text_of(kinds)}};
}

std::string cores_text(const Cluster& cluster) {
  const Cores& cores = cluster.ranks.front().cores;
  std::string text = format("{} of {} cores", cores.cores, cores.machine_cores);
  if (cores.quota > 0) text += format(", {:.2g} cores' time by {}", cores.quota, cores.quota_file);
  return (cluster.ranks.size() == 1 ? "this rank may use " : "no two ranks share a CPU; rank 0 may use ") +
         text;
}

std::string threads_text(const Cluster& cluster) {
  const auto share = share_of(cluster.ranks.front(), cluster);
  return format("{} a rank ({})", share.threads, share.because);
}

std::string locality_text(const Cluster& cluster) {
  const Cores& cores = cluster.ranks.front().cores;
  const auto used =
      std::ranges::count_if(cores.numa, [&](const auto& numa) { return masks_overlap(cores.mask, numa); });
  return format("{}; rank 0 runs on {}", counted(cores.numa.size(), "NUMA node"), used);
}

std::string numa_drawing(const Cluster& cluster) {
  std::string text;
  for (const Machine& machine : machines_of(cluster)) {
    const auto& numa = machine.front()->cores.numa;
    if (numa.size() < 2 && machine.front()->gpus.empty()) continue;
    for (size_t i = 0; i < numa.size(); ++i) text += numa_row(numa[i], i, machine);
  }
  return text;
}

std::string gpus_text(const Cluster& cluster) {
  const RankFacts& first = cluster.ranks.front();
  const Gpu* gpu = own_gpu(first);
  if (first.wanted == "cpu") return "not used: the device is cpu";
  return gpu ? "one a rank: " + gpu->name : "none, ranks compute on the CPU: " + first.gpus_because;
}

std::string gpu_table(const Cluster& cluster) {
  std::string text;
  for (const RankFacts& facts : cluster.ranks)
    if (const Gpu* gpu = own_gpu(facts))
      text += format("rank {}  cuda:{}  {}  {}  {}  sm_{}{}  {}\n", facts.job.rank, facts.gpu, gpu->uuid,
                     gpu->name, bytes_text(gpu->memory), gpu->major, gpu->minor, gpu->bus);
  return text;
}

std::string libtorch_text(const Cluster& cluster) {
  const RankFacts& facts = cluster.ranks.front();
  std::string text = format("CPU capability {}", facts.cpu_capability);
  if (!facts.cpu_flags.empty()) text += format(" (the processor has {})", base::join(facts.cpu_flags, " "));
  if (!facts.torch_archs.empty()) text += ", GPUs " + base::join(facts.torch_archs, " ");
  return text;
}

const Check kComputeChecks[] = {
    {"cores", cores_text},          {"threads", threads_text},   {"locality", locality_text, numa_drawing},
    {"gpus", gpus_text, gpu_table}, {"libtorch", libtorch_text},
};

const Rule kComputeRules[] = {
    {"cores", kPoor, crowded_cores,
     "let the launcher give each rank cores of its own: srun --cpu-bind=cores, mpirun --bind-to core "
     "--map-by "
     "slot:PE=N; check that no taskset stands before the program"},
    {"cores", kPoor, idle_cores,
     "mpirun binds each rank to one core: --bind-to none, or --map-by slot:PE=N, gives them the rest"},
    {"threads", kPoor, too_many_threads,
     "set OMP_NUM_THREADS to the share, or leave it out: lockstep takes the share"},
    {"locality", kPoor, far_from_gpu,
     "bind ranks close to their GPUs: srun --gpu-bind=closest, or a --cpu-bind map"},
    {"gpus", kBad, shared_gpus,
     "ask the scheduler for a GPU a rank (--gpus-per-node, ngpus=), start fewer ranks a node, or train on "
     "CPUs: "
     "launch.device=cpu"},
    {"gpus", kBad, no_device, "ask for as many GPUs a node as ranks, or set launch.device to cpu"},
    {"gpus", kBad, [](const Cluster& cluster) { return mixed_gpus(cluster, true); },
     "some ranks would train on CPUs while the others wait: ask for GPUs on every node, or set launch.device "
     "to "
     "cpu"},
    {"gpus", kPoor, [](const Cluster& cluster) { return mixed_gpus(cluster, false); },
     "every step waits for the slowest: ask for nodes of one kind (-C, gpu_type)"},
    {"libtorch", kPoor, uneven_instructions,
     "speeds and last bits differ: ask for nodes of one kind, and set ATEN_CPU_CAPABILITY on all ranks or "
     "none"},
    {"libtorch", kBad, unsupported_gpu, "build with a libtorch for this GPU (docs/how-to/install.md)"},
    {"libtorch", kPoor, unused_instructions, "unset ATEN_CPU_CAPABILITY"},
};

}  // namespace

Subject compute_subject() {
  return {kComputeChecks, kComputeRules};
}

}  // namespace lockstep::doctor
