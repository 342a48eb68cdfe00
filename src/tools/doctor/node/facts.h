#pragma once
// What one rank knows of itself and its node, as it travels to rank 0. A new fact: a field here, one word in
// facts.cpp's list of its struct, and a line in a collector (collect.h).

#include <map>
#include <string>
#include <vector>

#include "lockstep/launch/job.h"

namespace lockstep::doctor {

struct Gpu {
  std::string uuid = {}, name = {}, bus = {};  // bus: "0000:17:00.0"
  long long memory = 0;                        // bytes
  int major = 0, minor = 0;                    // compute capability
};

/// Cores and NUMA nodes, as hwloc sees them.
struct Cores {
  std::string mask = {};                   // hardware threads this process may run on, "0-3,8"
  std::string whole = {};                  // the mask with the other hardware threads of its cores
  int cores = 1;                           // of the mask
  int machine_cores = 1;                   // of the node
  int machine_threads = 1;                 // hardware threads of the node
  double quota = 0;                        // a container's; 0 = none
  std::string quota_file = {};             // what says so
  std::vector<std::string> numa = {};      // the hardware threads of each NUMA node, "0-15"
  std::vector<std::string> gpu_near = {};  // by GPU: the hardware threads beside it; "" where nobody tells
};

/// Bytes; -1 = not known, or no limit.
struct Memory {
  long long total = -1, available = -1, swap = -1;
  long long limit = -1, used = -1;  // the control group's that is nearest to its end
  std::string limit_file = {};
  long long shm_total = -1, shm_free = -1;  // of /dev/shm
  unsigned long shm_device = 0;             // the file system there
  std::string shm_error = {};               // why a file there could not be made
};

/// Of one resource; -1 = unlimited.
struct Limit {
  long long soft = -1, hard = -1;
};

/// What concerns where this process runs.
struct Walls {
  std::string container = {};                     // "Docker", "Apptainer", ...; empty = none is known of
  bool nvidia_devices = false;                    // /dev/nvidia0 or its like is there
  bool nvidia_kernel = false;                     // the host's kernel has the driver
  bool cuda_library = false;                      // libcuda.so.1 can be opened
  bool infiniband = false;                        // /sys/class/infiniband has a device
  std::vector<std::string> blocked_signals = {};  // of those that end a job
  std::string no_folder = {};                     // TMPDIR, where it is no folder on this rank's node
};

struct ProcessLimits {
  Limit files = {}, locked = {}, core = {}, stack = {}, processes = {}, memory = {};
};

struct RankFacts {
  Job job = {};
  long pid = 0;
  unsigned long pid_space = 0;  // its PID namespace: pids of two spaces do not compare
  std::string machine = {};     // the same for two ranks on one machine, whatever they call it
  double clock = 0;             // seconds since 1970, when these facts were told
  std::map<std::string, std::string>
      versions;  // "lockstep" -> "0.1.0", commit, libtorch, MPI, driver, kernel ...
  std::map<std::string, std::string> variables = {};  // those of its environment that concern a run
  std::string wanted = "auto";                        // --device
  std::string device_error = {};                      // why no device could be chosen
  int driver = 0;                                     // CUDA's, 12040; 0 = none
  std::vector<Gpu> gpus = {};                         // that it may see
  int gpu = -1;                                       // the one that it takes
  std::string gpus_because = {};                      // who counted them
  Cores cores = {};
  Memory memory = {};
  ProcessLimits limits = {};
  Walls walls = {};
  std::string host_error = {};  // why the host's name does not resolve
  std::vector<std::string> host_addresses = {};
  std::string cpu_capability = {};  // what libtorch uses: "AVX512"
  std::vector<std::string> cpu_flags =
      {};  // of those that matter, what the processor has: "avx2", "amx_tile"
  std::vector<std::string> torch_archs = {};       // GPU architectures libtorch was built for: "sm_90"
  std::map<std::string, std::string> failed = {};  // collector -> its error, where it could not do its work
};

std::string pack(const RankFacts& facts);
/// Throws Error where that is not what pack() makes.
RankFacts unpack(const std::string& text);

/// All ranks that came, by rank, as the checks look at them.
struct Picture {
  std::vector<RankFacts> ranks = {};
  /// How many ranks there are meant to be.
  int world() const { return ranks.empty() ? 0 : ranks.front().job.world; }
  bool complete() const { return static_cast<size_t>(world()) == ranks.size(); }
};

}  // namespace lockstep::doctor
