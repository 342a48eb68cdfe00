#include "lockstep/launch/process/cpus.h"

#include <hwloc.h>

#include <algorithm>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/process/mpi.h"
#include "lockstep/launch/variables.h"

namespace lockstep::launch {
namespace {

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<hwloc_bitmap_s, FreeBitmap>;

struct DestroyTopology {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, DestroyTopology>;

// Only cores: reading caches and devices takes long if a hundred ranks do it at once.
Topology load_cores() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) throw Error("hwloc_topology_init failed", "hwloc");
  Topology topology(raw);
  hwloc_topology_set_all_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_type_filter(raw, HWLOC_OBJ_CORE, HWLOC_TYPE_FILTER_KEEP_ALL);
  if (hwloc_topology_load(raw) != 0)
    throw Error("hwloc_topology_load failed", "hwloc",
                "unset HWLOC_XMLFILE and HWLOC_SYNTHETIC, and check that /sys is mounted");
  return topology;
}

std::string list_of(hwloc_const_bitmap_t bitmap) {
  char* text = nullptr;
  if (hwloc_bitmap_list_asprintf(&text, bitmap) < 0)
    throw Error("hwloc_bitmap_list_asprintf failed", "hwloc");
  const std::unique_ptr<char, decltype(&free)> owner(text, &free);
  return text;
}

Bitmap bitmap_of(const std::string& list) {
  Bitmap bitmap(hwloc_bitmap_alloc());
  if (hwloc_bitmap_list_sscanf(bitmap.get(), list.c_str()) != 0)
    throw Error("not a CPU list: " + list, "hwloc");
  return bitmap;
}

int count_cores(hwloc_topology_t topology, hwloc_const_bitmap_t mask) {
  int cores = 0;
  for (hwloc_obj_t core = nullptr; (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core));)
    cores += hwloc_bitmap_intersects(core->cpuset, mask) ? 1 : 0;
  return cores > 0 ? cores : std::max(1, hwloc_bitmap_weight(mask));  // some containers hide their cores
}

struct Bound {
  int threads;
  std::string because;
};

Bound mask_bound(const Job& job, const Environment& environment, const CpuMask& mask,
                 std::optional<int> sharers) {
  // if a plug-in of srun binds each task to its own cores, the mask is one task's
  const bool bound_by_slurm = text_of(environment, "SLURM_CPU_BIND_TYPE").starts_with("mask_cpu");
  if (!sharers && job.launcher == "slurm" && bound_by_slurm) sharers = 1;
  const int ranks = sharers.value_or(job.local_world);
  return {std::max(1, mask.cores / std::max(1, ranks)),
          format("{} for {}", base::counted(mask.cores, "allowed core"), base::counted(ranks, "rank"))};
}

// Cores from the scheduler: for a rank, or for the job's ranks on this node together.
struct Grant {
  const char* scheduler;
  const char* variable;
  bool a_rank;
};

constexpr Grant kGrants[] = {{"slurm", "SLURM_CPUS_PER_TASK", true},
                             {"slurm", "SLURM_CPUS_ON_NODE", false},
                             {"pbs", "NCPUS", false},
                             {"torque", "PBS_NUM_PPN", false}};

Bound share_of(const Job& job, const Environment& environment, const CpuMask& mask,
               std::optional<int> sharers) {
  Bound best = mask_bound(job, environment, mask, sharers);
  for (const auto& grant : kGrants) {
    if (job.scheduler != grant.scheduler) continue;
    const auto given = count_of(environment, grant.variable);
    if (!given) continue;
    const int threads = grant.a_rank ? *given : std::max(1, *given / job.local_world);
    if (threads >= best.threads) continue;
    best = {threads, quote(environment, grant.variable)};
    if (!grant.a_rank) best.because += " for " + base::counted(job.local_world, "rank");
  }
  return best;
}

// The mask does not show a container's quota, which its ranks share.
void bound_by_quota(Bound& best, const Job& job, const std::optional<CpuQuota>& quota) {
  if (!quota) return;
  const int threads = std::max(1, static_cast<int>(quota->cores / job.local_world));
  if (threads >= best.threads) return;
  best = {threads, format("{} allows {:.2g} cores for {}", quota->because, quota->cores,
                          base::counted(job.local_world, "rank"))};
}

// OpenPBS sets OMP_NUM_THREADS to the cores of the chunk, even if several ranks share them.
bool preset_by_pbs(const Job& job, const Environment& environment) {
  return job.scheduler == "pbs" && is_set(environment, "NCPUS") &&
         text_of(environment, "OMP_NUM_THREADS") == text_of(environment, "NCPUS");
}

// "4,2" has a count for each nesting level; the first applies.
std::optional<int> asked_threads(const Environment& environment) {
  const std::string text = text_of(environment, "OMP_NUM_THREADS");
  if (text.empty()) return std::nullopt;
  return count_of({{"OMP_NUM_THREADS", text.substr(0, text.find(','))}}, "OMP_NUM_THREADS");
}

std::optional<int> count_sharers(const Runtime& runtime, const CpuMask& mask) {
  if (!runtime.has_mpi()) return std::nullopt;
  const auto node = format("{} ", runtime.job().node_rank);
  const auto masks = runtime.all_gather(node + mask.units);
  return static_cast<int>(std::ranges::count_if(masks, [&](const std::string& other) {
    return other.starts_with(node) && masks_overlap(mask.units, other.substr(node.size()));
  }));
}

}  // namespace

CpuMask own_cpus() {
  const Topology topology = load_cores();
  const Bitmap mask(hwloc_bitmap_alloc());
  const auto* machine = hwloc_topology_get_topology_cpuset(topology.get());
  if (hwloc_get_cpubind(topology.get(), mask.get(), HWLOC_CPUBIND_PROCESS) != 0)
    hwloc_bitmap_copy(mask.get(), machine);
  return {list_of(mask.get()), count_cores(topology.get(), mask.get()), count_cores(topology.get(), machine)};
}

bool masks_overlap(const std::string& a, const std::string& b) {
  return hwloc_bitmap_intersects(bitmap_of(a).get(), bitmap_of(b).get()) != 0;
}

ThreadShare choose_threads(const Job& job, const Environment& environment, const CpuMask& mask,
                           std::optional<int> sharers, const std::optional<CpuQuota>& quota) {
  Bound share = share_of(job, environment, mask, sharers);
  bound_by_quota(share, job, quota);
  const auto asked = asked_threads(environment);
  if (!asked) return {share.threads, share.because, {}};
  const std::string quoted = quote(environment, "OMP_NUM_THREADS");
  if (*asked > share.threads && preset_by_pbs(job, environment)) {
    return {share.threads, format("{} ({} is PBS's preset for the whole node)", share.because, quoted), {}};
  }
  ThreadShare result{*asked, quoted, {}};
  if (*asked > share.threads) {
    result.warnings.push_back(
        format("{} is more than this rank's share of {} ({}), so the ranks will compete for cores", quoted,
               share.threads, share.because));
  }
  return result;
}

ThreadShare share_threads(const Runtime& runtime, const Environment& environment) {
  const CpuMask mask = own_cpus();
  return choose_threads(runtime.job(), environment, mask, count_sharers(runtime, mask), cpu_quota());
}

}  // namespace lockstep::launch
