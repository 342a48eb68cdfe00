#pragma once
// What the scheduler gave a job, and how the job's ranks are laid out on it.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace lockstep::job {

using Environment = std::map<std::string, std::string>;

/// The variable's value; `otherwise` where it is not set or empty.
std::string value(const Environment& environment, const std::string& name, const std::string& otherwise = "");

/// The variable as a count. InputError unless it is a whole number of at least `least`.
int64_t count(const Environment& environment, const std::string& name, int64_t otherwise, int64_t least = 0);

struct Node {
  std::string name;
  int64_t cpus = 1;   ///< as the scheduler counts them: cores, or hardware threads
  int64_t tasks = 1;  ///< that the scheduler laid out on it
  int64_t gpus = 0;
};

struct Allocation {
  std::vector<Node> nodes;
  int64_t threads_per_core = 1;  ///< in `cpus`
  bool tasks_asked = false;      ///< the user asked for tasks, so `tasks` counts
  int64_t cpus_per_task = 0;     ///< that the user asked for, as the scheduler counts them; 0 = not asked
  int64_t components = 1;        ///< of a heterogeneous Slurm job
};

struct Layout {
  int64_t nodes = 1, ranks = 1;
  int64_t ranks_per_node = 0;  ///< 0 = as the scheduler laid its tasks out
  int64_t cores_per_rank = 1;
  int64_t cores_per_node = 1;  ///< of the smallest node
  int64_t cpus_per_node = 1;   ///< the same as the scheduler counts
  int64_t threads_per_core = 1;
  std::vector<std::string> warnings = {};

  int64_t most_ranks_on_a_node() const { return (ranks + nodes - 1) / nodes; }
};

/// One rank for each GPU; else one for each task that was asked for; else one for each core. The settings
/// LOCKSTEP_RANKS_PER_NODE and LOCKSTEP_CPUS_PER_RANK decide where they are set.
Layout lay_out(const Allocation& allocation, const Environment& settings);

/// Hardware threads of a core in what the scheduler counts: 1 where `counted`, its CPUs of this node, are
/// cores. LOCKSTEP_THREADS_PER_CORE decides where it is set. `cpu_folder`: where the kernel lists its CPUs.
int64_t threads_per_core(const Environment& settings, int64_t counted,
                         const std::string& cpu_folder = "/sys/devices/system/cpu");

/// "0,1" as in CUDA_VISIBLE_DEVICES: how many.
int64_t gpus_in(const std::string& list);

/// Whether the GPUs of this node are AMD's, which lockstep cannot use.
bool gpus_are_amd(const Environment& environment, int64_t gpus, const std::string& device_folder = "/dev");

// What Slurm and PBS say, as an allocation.

/// `cpus_of_this_node`: all that Slurm counts on it, 0 where it does not say. `names`: the nodes' names.
Allocation slurm_allocation(const Environment& environment, const std::vector<std::string>& names,
                            int64_t threads);

/// `record`: the job's fields in `qstat -f`. `node_file`: the lines of PBS_NODEFILE.
Allocation pbs_allocation(const Environment& environment, const Environment& record,
                          const std::vector<std::string>& node_file, int64_t threads);

/// Slurm's "4(x2),1" as 4, 4, 1.
std::vector<int64_t> slurm_counts(const std::string& text);

}  // namespace lockstep::job
