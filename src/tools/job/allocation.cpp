// What Slurm and PBS gave a job, and the layout of its ranks.
#include <sched.h>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>

#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/identify.h"
#include "tools/job/job.h"
#include "trainer/config/numbers.h"

namespace lockstep::job {
namespace {

constexpr const char* kSiblings = "topology/thread_siblings_list";  // names a core, in a CPU's folder

int64_t at_least_1(int64_t number) {
  return std::max<int64_t>(1, number);
}

// 0 = unknown
int64_t cores_of_a_task(const Allocation& given) {
  int64_t cpus = given.cpus_per_task;
  if (cpus == 0 && given.tasks_requested) {
    const auto share = [](const Node& node) { return node.cpus / at_least_1(node.tasks); };
    cpus = at_least_1(share(*std::ranges::min_element(given.nodes, {}, share)));
  }
  return cpus == 0 ? 0 : at_least_1(cpus / given.threads_per_core);
}

void add_warnings(const Allocation& given, Layout& layout) {
  const auto all = sum_of(&Node::cpus, given) / given.threads_per_core;
  const auto used = layout.ranks * layout.cores_per_rank;
  if (layout.ranks_per_node > layout.cores_per_node)
    layout.warnings.push_back(
        format("{} ranks share {} of a node; request more (--cpus-per-task, --cpus-per-gpu, ncpus)",
               layout.ranks_per_node, base::counted(layout.cores_per_node, "core")));
  else if (2 * used <= all)
    layout.warnings.push_back(
        format("the job uses {2} of its {3} cores ({0}, {1} per rank); to use more, set "
               "LOCKSTEP_RANKS_PER_NODE or LOCKSTEP_CPUS_PER_RANK",
               base::counted(layout.ranks, "rank"), base::counted(layout.cores_per_rank, "core"), used, all));
}

// "0,1" as in CUDA_VISIBLE_DEVICES
int64_t gpus_in(const std::string& list) {
  if (list.starts_with("NoDevFiles")) return 0;
  const auto parts = base::split(list, ',');
  return std::ranges::count_if(parts, [](const std::string& part) { return !part.empty(); });
}

// The variable, or those of all components of a heterogeneous job.
std::string of_all_components(const Environment& environment, int64_t components, const std::string& name,
                              const std::string& otherwise) {
  if (components == 1) return value(environment, name, otherwise);
  std::string list;
  for (int64_t i = 0; i < components; ++i)
    list += (i > 0 ? "," : "") + value(environment, format("{}_HET_GROUP_{}", name, i), otherwise);
  return list;
}

// exec_vnode=(n1:ncpus=2:ngpus=1)+(n1:ncpus=2) has an entry for each chunk, exec_host=n1/0*2+n1/1*2 hosts.
std::map<std::string, Node> chunks_by_host(const Environment& record) {
  std::map<std::string, Node> hosts;
  const auto names = base::split(value(record, "exec_host"), '+');
  const auto chunks = base::split(value(record, "exec_vnode"), ')');
  for (size_t i = 0; i < chunks.size(); ++i) {
    const auto name = i < names.size() ? short_name(names[i]) : "";
    auto& host = hosts.try_emplace(name, Node{"", 0, 0, 0}).first->second;
    auto text = chunks[i];
    std::ranges::replace(text, '+', ':');
    for (const auto& word : base::split(text, ':')) {
      if (word.starts_with("ncpus=")) host.cpus += config::parse_int(word.substr(6)).value_or(0);
      if (word.starts_with("ngpus=")) host.gpus += config::parse_int(word.substr(6)).value_or(0);
    }
  }
  return hosts;
}

}  // namespace

int64_t count(const Environment& environment, const std::string& name, int64_t otherwise, int64_t least) {
  const auto text = value(environment, name);
  if (text.empty()) return otherwise;
  const auto number = config::parse_int(text);
  if (number && *number >= least) return *number;
  throw InputError(format("{} must be an integer of at least {} (got {})", name, least, text), name);
}

int64_t sum_of(int64_t Node::*field, const Allocation& given) {
  return std::accumulate(given.nodes.begin(), given.nodes.end(), int64_t{0},
                         [&](int64_t sum, const Node& node) { return sum + node.*field; });
}

std::string short_name(const std::string& host) {
  return host.substr(0, host.find_first_of("./["));
}

Layout lay_out(const Allocation& given, const Environment& settings) {
  Layout layout;
  layout.nodes = static_cast<int64_t>(given.nodes.size());
  layout.threads_per_core = given.threads_per_core;
  layout.cpus_per_node = std::ranges::min_element(given.nodes, {}, &Node::cpus)->cpus;
  layout.cores_per_node = at_least_1(layout.cpus_per_node / given.threads_per_core);
  const auto gpus = std::ranges::min_element(given.nodes, {}, &Node::gpus)->gpus;
  const auto wanted_cores = count(settings, "LOCKSTEP_CPUS_PER_RANK", 0, 1);
  auto cores = cores_of_a_task(given);
  if (const auto asked = count(settings, "LOCKSTEP_RANKS_PER_NODE", 0, 1)) {
    if (given.components > 1)
      throw InputError("LOCKSTEP_RANKS_PER_NODE cannot be used in a heterogeneous job",
                       "LOCKSTEP_RANKS_PER_NODE", "use --ntasks-per-node for each component");
    layout.ranks_per_node = asked;
  } else if (gpus > 0) {
    layout.ranks_per_node = gpus;
  } else if (!given.tasks_requested) {
    layout.ranks_per_node =
        at_least_1(layout.cores_per_node / at_least_1(wanted_cores > 0 ? wanted_cores : cores));
  } else if (given.components == 1) {
    const auto tasks = given.nodes.front().tasks;
    const bool same = std::ranges::count(given.nodes, tasks, &Node::tasks) == std::ssize(given.nodes);
    layout.ranks_per_node = same ? tasks : 0;
  }
  layout.ranks =
      layout.ranks_per_node > 0 ? layout.nodes * layout.ranks_per_node : sum_of(&Node::tasks, given);
  if (layout.ranks_per_node > 0) {
    const auto most = at_least_1(layout.cores_per_node / layout.ranks_per_node);
    if (cores == 0 || cores > most) cores = most;
  }
  layout.cores_per_rank = wanted_cores > 0 ? wanted_cores : at_least_1(cores);
  add_warnings(given, layout);
  return layout;
}

int64_t threads_per_core(const Environment& settings, int64_t counted, const std::string& cpu_folder) {
  if (const auto asked = count(settings, "LOCKSTEP_THREADS_PER_CORE", 0, 1)) return asked;
  std::multiset<std::string> threads;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(cpu_folder, none))
    threads.insert(base::first_line(entry.path() / kSiblings));
  threads.erase("");
  const auto cores = std::ssize(std::set(threads.begin(), threads.end()));
  if (cores == 0 || (counted > 0 ? counted : std::ssize(threads)) <= cores) return 1;
  return std::ssize(threads) / cores;
}

int64_t own_cores() {
  cpu_set_t mask;
  if (::sched_getaffinity(0, sizeof mask, &mask) != 0) return 0;
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &mask))
      cores.insert(base::first_line(format("/sys/devices/system/cpu/cpu{}/{}", cpu, kSiblings)));
  return cores.contains("") ? 0 : std::ssize(cores);
}

// ---- Slurm ----

Allocation slurm_allocation(const Environment& environment, const std::vector<std::string>& names,
                            int64_t threads) {
  Allocation given;
  given.threads_per_core = threads;
  given.components = count(environment, "SLURM_HET_SIZE", 1, 1);
  const auto list = [&](const char* name, const std::string& otherwise) {
    return launch::parse_task_counts(of_all_components(environment, given.components, name, otherwise));
  };
  const auto cpus = list("SLURM_JOB_CPUS_PER_NODE", value(environment, "SLURM_CPUS_ON_NODE", "1"));
  const auto tasks = list("SLURM_TASKS_PER_NODE", "1");
  const auto sizes = list("SLURM_JOB_NUM_NODES", "1");
  const bool gpus_are_bound = !value(environment, "SLURM_GPUS_PER_TASK").empty() || given.components > 1;
  const auto here = value(environment, "SLURM_GPUS_ON_NODE");
  const auto ids = value(environment, "SLURM_JOB_GPUS", value(environment, "CUDA_VISIBLE_DEVICES"));
  const auto gpus = gpus_are_bound ? 0 : here.empty() ? gpus_in(ids) : config::parse_int(here).value_or(0);
  const auto nodes = static_cast<size_t>(std::accumulate(sizes.begin(), sizes.end(), int64_t{0}));
  const auto at = [](const auto& values, size_t i) { return i < values.size() ? values[i] : int64_t{1}; };
  for (size_t i = 0; i < std::max<size_t>(nodes, 1); ++i)
    given.nodes.push_back({i < names.size() ? names[i] : "", at(cpus, i), at(tasks, i), gpus});
  // SLURM_NTASKS is set if tasks were requested. If it does not match, it comes from an outer job.
  given.tasks_requested =
      given.components > 1 ||
      config::parse_int(value(environment, "SLURM_NTASKS")).value_or(-1) == sum_of(&Node::tasks, given);
  if (given.components == 1)
    given.cpus_per_task = config::parse_int(value(environment, "SLURM_CPUS_PER_TASK")).value_or(0);
  const auto all_gpus = config::parse_int(value(environment, "SLURM_GPUS")).value_or(0);
  if (gpus > 0 && all_gpus > 0 && all_gpus != gpus * static_cast<int64_t>(nodes))
    throw InputError(format("a total of {} is not spread evenly over {}", base::counted(all_gpus, "GPU"),
                            base::counted(static_cast<long long>(nodes), "node")),
                     "SLURM_GPUS", "request them with --gpus-per-node");
  return given;
}

// ---- PBS ----

Allocation pbs_allocation(const Environment& environment, const Environment& record,
                          const std::vector<std::string>& node_file, int64_t threads) {
  Allocation given;
  given.threads_per_core = threads;
  const auto chunks = chunks_by_host(record);
  const auto visible = gpus_in(value(environment, "CUDA_VISIBLE_DEVICES"));
  const bool has_gpus = std::ranges::any_of(chunks, [](const auto& chunk) { return chunk.second.gpus > 0; });
  for (const auto& line : node_file) {
    if (base::trimmed(line).empty()) continue;
    const auto name = base::trimmed(line);
    const auto found = std::ranges::find(given.nodes, name, &Node::name);
    if (found != given.nodes.end()) {
      ++found->tasks;
      continue;
    }
    const auto chunk = chunks.find(short_name(name));
    Node node{name, chunk == chunks.end() ? 0 : chunk->second.cpus, 1,
              chunk == chunks.end() ? 0 : chunk->second.gpus};
    if (node.cpus == 0) node.cpus = config::parse_int(value(environment, "NCPUS")).value_or(1);
    // the script runs on the first node, whose variable may not hold for the others
    if (visible > 0 && (given.nodes.empty() || !has_gpus)) node.gpus = visible;
    given.nodes.push_back(node);
  }
  if (given.nodes.empty())
    throw InputError("the node file of the job is empty", value(environment, "PBS_NODEFILE"));
  // with one line per host and no mpiprocs, the user requested no ranks
  given.tasks_requested = sum_of(&Node::tasks, given) != static_cast<int64_t>(given.nodes.size()) ||
                          value(record, "Resource_List.select").find("mpiprocs=") != std::string::npos;
  return given;
}

}  // namespace lockstep::job
