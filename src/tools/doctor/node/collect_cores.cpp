// Cores, hardware threads and NUMA nodes of this machine, what of them is ours, and which GPU is beside
// which.
#include <hwloc.h>

#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/launch/process/cpus.h"
#include "tools/doctor/node/bitmap.h"
#include "tools/doctor/node/collect.h"

namespace lockstep::doctor {
namespace {

struct Destroy {
  void operator()(hwloc_topology_t topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, Destroy>;

// with packages and groups: without them a NUMA node would be said to have all of the machine's cores
Topology load_numa() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) throw Error("hwloc_topology_init failed", "hwloc");
  Topology topology(raw);
  if (hwloc_topology_load(raw) != 0) throw Error("hwloc_topology_load failed", "hwloc");
  return topology;
}

std::string list_of(hwloc_const_bitmap_t bitmap) {
  char* text = nullptr;
  if (hwloc_bitmap_list_asprintf(&text, bitmap) < 0) return "";
  const std::unique_ptr<char, decltype(&free)> owner(text, &free);
  return text;
}

// Two hardware threads of one core slow each other as two ranks on one thread do.
std::string whole_cores(hwloc_topology_t topology, const std::string& units) {
  const Bitmap mask(hwloc_bitmap_alloc()), whole(hwloc_bitmap_alloc());
  if (hwloc_bitmap_list_sscanf(mask.get(), units.c_str()) != 0) return units;
  hwloc_bitmap_copy(whole.get(), mask.get());
  for (hwloc_obj_t core = nullptr; (core = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_CORE, core));) {
    if (hwloc_bitmap_intersects(core->cpuset, mask.get()))
      hwloc_bitmap_or(whole.get(), whole.get(), core->cpuset);
  }
  return list_of(whole.get());
}

}  // namespace

void collect_cores(RankFacts& facts, const DoctorSettings&) {
  const launch::CpuMask mask = launch::own_cpus();
  Cores& cores = facts.cores;
  cores.mask = mask.units;
  cores.cores = mask.cores;
  cores.machine_cores = mask.machine_cores;
  if (const auto quota = launch::cpu_quota()) {
    cores.quota = quota->cores;
    cores.quota_file = quota->because;
  }
  const Topology topology = load_numa();
  cores.whole = whole_cores(topology.get(), mask.units);
  cores.machine_threads = hwloc_bitmap_weight(hwloc_topology_get_topology_cpuset(topology.get()));
  for (hwloc_obj_t node = nullptr;
       (node = hwloc_get_next_obj_by_type(topology.get(), HWLOC_OBJ_NUMANODE, node));) {
    cores.numa.push_back(list_of(node->cpuset));
  }
}

}  // namespace lockstep::doctor
