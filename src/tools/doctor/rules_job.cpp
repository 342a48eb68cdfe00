// Rules about the job: who started the ranks and where they are, the same program and the same variables on
// each.
#include <algorithm>
#include <set>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/meet/join.h"
#include "lockstep/launch/process/report.h"
#include "tools/doctor/rules.h"

namespace lockstep::doctor {
namespace {

constexpr size_t kMostRows = 128;

// --- versions ---

// Ranks that differ in one of these must not train together.
constexpr const char* kStrict[] = {"lockstep", "commit", "libtorch", "MPI", "CUDA", "NCCL"};
constexpr const char* kLoose[] = {"kernel", "CUDA driver", "compiler"};

Problems difference_of_versions(const Cluster& cluster, std::span<const char* const> names) {
  std::vector<comm::Facts> all;
  for (const RankFacts& facts : cluster.ranks) {
    comm::Facts& own = all.emplace_back();
    for (const char* name : names) {
      const auto found = facts.versions.find(name);
      own.emplace_back(name, found == facts.versions.end() ? "" : found->second);
    }
  }
  const auto text = comm::difference(all);
  return text.empty() ? Problems() : Problems{{text}};
}

// --- variables ---

bool is_on(const std::string& value) {
  return !value.empty() && value != "0" && value != "false" && value != "FALSE" && value != "no";
}
bool is_set(const std::string&) {
  return true;
}
bool is_no_count(const std::string& value) {
  return value.empty() || value.find_first_not_of("0123456789,") != std::string::npos || value[0] == '0';
}
bool is_detail(const std::string& value) {
  return value == "DETAIL";
}
bool is_sequential(const std::string& value) {
  return value == "SEQUENTIAL" || value == "sequential";
}
bool hides_all(const std::string& value) {
  return value.empty() || value.starts_with("-") || value == "NoDevFiles";
}
bool binds(const std::string& value) {
  return is_on(value) && value != "disabled" && value != "none";
}

struct OddVariable {
  const char* name;
  bool (*is_odd)(const std::string& value);
  const char* why;
};

constexpr OddVariable kOdd[] = {
    {"OMP_NUM_THREADS", is_no_count, "is not a number of threads, and each library reads it in its own way"},
    {"OMP_PROC_BIND", binds, "binds the threads of every rank, possibly to the same cores"},
    {"KMP_AFFINITY", binds, "binds the threads of every rank, possibly to the same cores"},
    {"GOMP_CPU_AFFINITY", is_set, "binds the threads of every rank to the same cores"},
    {"MKL_THREADING_LAYER", is_sequential, "limits matrix products to one thread"},
    {"MKL_DEBUG_CPU_TYPE", is_set, "makes oneMKL assume another processor"},
    {"NCCL_P2P_DISABLE", is_on, "prevents direct copies between the GPUs of a node"},
    {"NCCL_SHM_DISABLE", is_on, "sends messages within a node over the network"},
    {"NCCL_IB_DISABLE", is_on, "stops NCCL from using InfiniBand"},
    {"NCCL_NET_DISABLE", is_on, "stops NCCL from using the network"},
    {"TORCH_DISTRIBUTED_DEBUG", is_detail, "compares every collective before it runs, which is slow"},
    {"CUDA_LAUNCH_BLOCKING", is_on, "waits for every kernel, which is slow"},
    {"CUDA_VISIBLE_DEVICES", hides_all, "hides every GPU"},
    {"MALLOC_CHECK_", is_on, "makes every allocation slow"},
    {"MALLOC_PERTURB_", is_on, "makes every allocation slow"},
    {"LD_PRELOAD", is_on, "loads a library before all others"},
    {"HWLOC_SYNTHETIC", is_set, "makes hwloc report a made-up machine"},
    {"HWLOC_XMLFILE", is_set, "makes hwloc report another machine's cores"},
};

Problems odd_variables(const RankFacts& facts, const Cluster&) {
  const bool has_gpus = facts.walls.nvidia_kernel || facts.walls.nvidia_devices;
  std::vector<std::string> parts;
  for (const OddVariable& row : kOdd) {
    const auto found = facts.variables.find(row.name);
    if (found == facts.variables.end() || (row.is_odd == hides_all && !has_gpus)) continue;
    if (row.is_odd(found->second))
      parts.push_back(format("{}={} {}", row.name, base::printable(found->second), row.why));
  }
  if (!facts.walls.no_folder.empty())
    parts.push_back(format("TMPDIR={} is not a folder on {}, and MPI needs it for its sockets",
                           base::printable(facts.walls.no_folder), facts.job.host));
  return parts.empty() ? Problems() : Problems{{base::join(parts, "; ")}};
}

// Launchers set their own variables differently on each rank; people set these.
constexpr std::string_view kSame[] = {"NCCL_", "GLOO_",  "OMP_",      "MKL_",
                                      "KMP_",  "TORCH_", "LOCKSTEP_", "ATEN_"};

Problems different_variables(const Cluster& cluster) {
  std::vector<comm::Facts> all;
  for (const RankFacts& facts : cluster.ranks) {
    comm::Facts& own = all.emplace_back();
    for (const auto& [name, value] : facts.variables)
      if (std::ranges::any_of(kSame, [&, &text = name](auto prefix) { return text.starts_with(prefix); }))
        own.emplace_back(name, value);
  }
  const auto text = comm::difference(all);
  return text.empty() ? Problems() : Problems{{text}};
}

// --- ranks ---

Problems missing_ranks(const Cluster& cluster) {
  std::set<int> here;
  for (const RankFacts& facts : cluster.ranks) here.insert(facts.job.rank);
  std::vector<int> missing;
  for (int rank = 0; rank < cluster.world(); ++rank)
    if (!here.contains(rank)) missing.push_back(rank);
  if (missing.empty() || cluster.ranks.size() == 1) return {};
  return {{format("{} of {} did not come", ranks_in(missing), cluster.world())}};
}

std::string ranks_text(const Cluster& cluster) {
  return format("{} on {}", counted(cluster.ranks.size(), "rank"),
                counted(machines_of(cluster).size(), "machine"));
}

Problems uneven_machines(const Cluster& cluster) {
  const auto machines = machines_of(cluster);
  std::vector<std::string> parts;
  bool even = true;
  for (const Machine& machine : machines) {
    parts.push_back(format("{}: {}", machine.front()->job.host, machine.size()));
    even = even && machine.size() == machines.front().size();
  }
  if (even || !cluster.complete()) return {};
  return {{format("{}, unevenly ({})", ranks_text(cluster), base::join(parts, ", "))}};
}

constexpr auto kWarning = FindingLevel::warning, kFailure = FindingLevel::failure;

std::string launcher_text(const Cluster& cluster) {
  launch::Grouped launchers;
  for (const RankFacts& facts : cluster.ranks) {
    const Job& job = facts.job;
    const auto because = job.because.find("launcher");
    launch::add(launchers,
                format("{} ({}){}", job.launcher, because == job.because.end() ? "unknown" : because->second,
                       job.scheduler == "none" ? "" : format(", {} job {}", job.scheduler, job.job_id)),
                job.rank);
  }
  std::vector<std::string> texts;
  for (const auto& [text, ranks] : launchers)
    texts.push_back(launch::with_ranks(text, ranks, cluster.ranks.size()));
  return base::join(texts, "; ");
}

std::string rank_table(const Cluster& cluster) {
  std::string text = format("{:>4}  {:>7}  {:>5}  {:>8}  {:<7}  {:<12}  {}\n", "rank", "local", "node", "pid",
                            "gpu", "may use CPUs", "host");
  for (const RankFacts& facts : std::span(cluster.ranks).first(std::min(kMostRows, cluster.ranks.size()))) {
    const Job& job = facts.job;
    text += format("{:>4}  {:>7}  {:>5}  {:>8}  {:<7}  {:<12}  {}\n", job.rank,
                   format("{}/{}", job.local_rank, job.local_world), job.node_rank, facts.pid,
                   facts.gpu < 0 ? "-" : format("cuda:{}", facts.gpu), facts.cores.mask,
                   base::printable(job.host));
  }
  if (cluster.ranks.size() > kMostRows)
    text += format("and {} more: see --json\n", cluster.ranks.size() - kMostRows);
  return text;
}

std::string versions_text(const Cluster& cluster) {
  std::vector<std::string> parts;
  const auto& versions = cluster.ranks.front().versions;
  for (const char* name : {"lockstep", "commit", "libtorch", "MPI", "CUDA", "NCCL", "CUDA driver"}) {
    const auto found = versions.find(name);
    if (found == versions.end() || found->second == "not built in") continue;
    parts.push_back(found->second.starts_with(name) ? found->second : format("{} {}", name, found->second));
  }
  return base::join(parts, ", ");
}

const Check kJobChecks[] = {
    {"launcher", launcher_text, nullptr, true},
    {"ranks", ranks_text, rank_table},
    {"versions", versions_text},
    {"facts"},
    {"variables",
     [](const Cluster&) { return std::string("no variable is set that is known to slow a run"); }},
};

const Rule kJobRules[] = {
    {"launcher", kFailure,
     [](const RankFacts& facts, const Cluster&) {
       const Job& job = facts.job;
       return job.phantom.empty() ? Problems() : Problems{{job.phantom, job.phantom_hint}};
     },
     "start the ranks with srun, or with the mpirun of the MPI that is found"},
    {"launcher", kWarning,
     [](const RankFacts& facts, const Cluster&) {
       Problems problems;
       for (const auto& text : facts.job.warnings) problems.push_back({text});
       return problems;
     },
     "docs/reference/launchers.md explains which variables decide"},
    {"ranks", kFailure, missing_ranks, "look in their log for an earlier error; is their node up?"},
    {"ranks", kWarning, uneven_machines,
     "every step waits for the fullest node: ask for as many ranks on each (--ntasks-per-node, mpiprocs)"},
    {"versions", kFailure, [](const Cluster& cluster) { return difference_of_versions(cluster, kStrict); },
     "start the same installation on every node: is it on a file system that all of them share?"},
    {"versions", kWarning,
     [](const Cluster& cluster) {
       return difference_of_versions(cluster, kStrict).empty() ? difference_of_versions(cluster, kLoose)
                                                               : Problems();
     },
     "ask for nodes of one kind; where a run fails on some nodes only, look here first"},
    {"facts", kWarning,
     [](const RankFacts& facts, const Cluster&) {
       Problems problems;
       for (const auto& [name, error] : facts.failed)
         problems.push_back({format("cannot examine the {}: {}", name, error)});
       return problems;
     },
     "what is reported about it may be wrong"},
    {"variables", kWarning, odd_variables,
     "unset what you did not mean to set: look in ~/.bashrc, modules and the job's script"},
    {"variables", kWarning, different_variables,
     "set the same on every rank: srun --export=ALL, mpirun -x NAME"},
};

}  // namespace

Subject job_subject() {
  return {kJobChecks, kJobRules};
}

}  // namespace lockstep::doctor
