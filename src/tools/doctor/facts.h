#pragma once
// What one rank knows of itself and its node, and what a check finds. A new fact: a field here, its name in
// the list below, and a line in collect.cpp.

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/launch/job.h"

namespace lockstep {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Job, rank, world, local_rank, local_world, node_rank, nodes,
                                                host, launcher, scheduler, job_id, because, phantom,
                                                phantom_hint, warnings, guessed)
}

namespace lockstep::doctor {

struct Gpu {
  std::string uuid = {}, name = {}, bus = {};  // bus: "0000:17:00.0"
  long long memory = 0;                        // bytes
  int major = 0, minor = 0;                    // compute capability
};

/// Cores and NUMA nodes, as hwloc reports them.
struct Cores {
  std::string mask = {};                   // hardware threads this process may run on, "0-3,8"
  std::string whole = {};                  // the mask with the other hardware threads of its cores
  int cores = 1;                           // of the mask
  int machine_cores = 1;                   // of the node
  int machine_threads = 1;                 // hardware threads of the node
  double quota = 0;                        // of a control group; 0 = none
  std::string quota_file = {};             // that sets it
  std::vector<std::string> numa = {};      // the hardware threads of each NUMA node, "0-15"
  std::vector<std::string> gpu_near = {};  // by GPU: the hardware threads close to it; "" = unknown
};

/// Bytes; -1 = not known, or no limit.
struct Memory {
  long long total = -1, available = -1, swap = -1;
  long long limit = -1, used = -1;  // of the smallest control group
  std::string limit_file = {};
  long long shm_total = -1, shm_free = -1;  // of /dev/shm
  unsigned long shm_device = 0;             // its file system
  std::string shm_error = {};               // why a file could not be created there
};

/// Of one resource; -1 = unlimited.
struct Limit {
  long long soft = -1, hard = -1;
};

/// The process's surroundings.
struct Walls {
  std::string container = {};                     // "Docker", "Apptainer", ...; empty = none detected
  bool nvidia_devices = false;                    // /dev/nvidia0 or /dev/nvidiactl exists
  bool nvidia_kernel = false;                     // the host's kernel has the driver
  bool cuda_library = false;                      // libcuda.so.1 can be opened
  bool infiniband = false;                        // /sys/class/infiniband has a device
  std::vector<std::string> blocked_signals = {};  // of those that end a job
  std::string no_folder = {};                     // TMPDIR, where it is not a folder
};

struct ProcessLimits {
  Limit files = {}, locked = {}, core = {}, stack = {}, processes = {}, memory = {};
};

struct RankFacts {
  Job job = {};
  long pid = 0;
  unsigned long pid_space = 0;  // its PID namespace
  std::string machine = {};     // the same for two ranks on one machine, whatever its name is
  double clock = 0;             // seconds since 1970, when these facts were collected
  std::map<std::string, std::string> versions = {};   // "lockstep", "libtorch", "MPI", "kernel", ...
  std::map<std::string, std::string> variables = {};  // of the environment, those that concern a run
  std::string wanted = "auto";                        // --device
  std::string device_error = {};                      // why no device could be chosen
  int driver = 0;                                     // CUDA's, 12040; 0 = none
  std::vector<Gpu> gpus = {};                         // visible to this process
  int gpu = -1;                                       // the one it uses
  std::string gpus_because = {};                      // who counted them
  Cores cores = {};
  Memory memory = {};
  ProcessLimits limits = {};
  Walls walls = {};
  std::string host_error = {};  // why the host's name does not resolve
  std::vector<std::string> host_addresses = {};
  std::string cpu_capability = {};                 // what libtorch uses: "AVX512"
  std::vector<std::string> cpu_flags = {};         // the processor's, of those that matter: "avx2"
  std::vector<std::string> torch_archs = {};       // GPU architectures libtorch was built for: "sm_90"
  std::map<std::string, std::string> failed = {};  // collector -> its error
};

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Gpu, uuid, name, bus, memory, major, minor)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Cores, mask, whole, cores, machine_cores, machine_threads,
                                                quota, quota_file, numa, gpu_near)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Memory, total, available, swap, limit, used, limit_file,
                                                shm_total, shm_free, shm_device, shm_error)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Walls, container, nvidia_devices, nvidia_kernel, cuda_library,
                                                infiniband, blocked_signals, no_folder)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Limit, soft, hard)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ProcessLimits, files, locked, core, stack, processes, memory)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RankFacts, job, pid, pid_space, machine, clock, versions,
                                                variables, wanted, device_error, driver, gpus, gpu,
                                                gpus_because, cores, memory, limits, walls, host_error,
                                                host_addresses, cpu_capability, cpu_flags, torch_archs,
                                                failed)

/// The facts of all ranks that answered, by rank.
struct Cluster {
  std::vector<RankFacts> ranks = {};
  /// How many ranks the job has.
  int world() const { return ranks.empty() ? 0 : ranks.front().job.world; }
  bool complete() const { return static_cast<size_t>(world()) == ranks.size(); }
};

enum class FindingLevel { ok, warning, failure };
NLOHMANN_JSON_SERIALIZE_ENUM(FindingLevel, {{FindingLevel::ok, "ok"},
                                            {FindingLevel::warning, "warning"},
                                            {FindingLevel::failure, "failure"}})

struct Finding {
  FindingLevel verdict = FindingLevel::ok;
  std::string says;           // one line
  std::string remedy = {};    // what to do; empty where all is well
  std::string drawing = {};   // lines below it: a table, a topology
  std::string check = {};     // the check's name
  bool names_config = false;  // quotes a config, which a report for others must not
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Finding, verdict, says, remedy, drawing, check, names_config)

using Findings = std::vector<Finding>;

inline Finding ok(std::string says, std::string drawing = {}) {
  return {FindingLevel::ok, std::move(says), {}, std::move(drawing)};
}
inline Finding warning(std::string says, std::string remedy) {
  return {FindingLevel::warning, std::move(says), std::move(remedy)};
}
inline Finding failure(std::string says, std::string remedy) {
  return {FindingLevel::failure, std::move(says), std::move(remedy)};
}
inline void append(Findings& findings, Findings more) {
  for (Finding& finding : more) findings.push_back(std::move(finding));
}

}  // namespace lockstep::doctor
