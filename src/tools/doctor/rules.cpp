// How rules are evaluated, and the rules about the job: its launcher, where its ranks are, the same program
// and the same variables on each.
#include <algorithm>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/program.h"
#include "lockstep/comm/rendezvous/join.h"
#include "lockstep/launch/process/report.h"
#include "tools/doctor/doctor.h"
#include "tools/report/page.h"

namespace lockstep::doctor {
namespace {

Finding completed(const Rule& rule, Finding problem) {
  if (problem.verdict == FindingLevel::ok) problem.verdict = rule.level;
  if (problem.remedy.empty()) problem.remedy = rule.remedy;
  return problem;
}

Findings apply(const Rule& rule, const Cluster& cluster) {
  Findings findings;
  if (const auto* of_job = std::get_if<2>(&rule.problems)) {
    for (const Finding& problem : (*of_job)(cluster)) findings.push_back(completed(rule, problem));
  } else if (const auto* of_machine = std::get_if<1>(&rule.problems)) {
    const auto machines = machines_of(cluster);
    for (const Machine& machine : machines)
      for (const Finding& problem : (*of_machine)(machine)) {
        findings.push_back(completed(rule, problem));
        if (machines.size() > 1) findings.back().says = machine.front()->job.host + ": " + problem.says;
      }
  } else {
    std::vector<std::pair<int, Finding>> found;
    for (const RankFacts& facts : cluster.ranks)
      for (const Finding& problem : std::get<0>(rule.problems)(facts, cluster))
        found.emplace_back(facts.job.rank, completed(rule, problem));
    findings = of_ranks(found, cluster.ranks.size());
  }
  return findings;
}

constexpr size_t kMostRows = 128;  // of the table of ranks

// --- launcher and ranks ---

std::string launcher_text(const Cluster& cluster) {
  const Job& job = cluster.ranks.front().job;
  const auto because = job.because.find("launcher");
  return format("{} ({}){}", job.launcher, because == job.because.end() ? "unknown" : because->second,
                job.scheduler == "none" ? "" : format(", {} job {}", job.scheduler, job.job_id));
}

std::string ranks_text(const Cluster& cluster) {
  return format("{} on {}", counted(cluster.ranks.size(), "rank"),
                counted(machines_of(cluster).size(), "machine"));
}

std::string rank_table(const Cluster& cluster) {
  report::Table table = {{"rank", "local", "node", "pid", "gpu", "may use CPUs", "host"}};
  for (const RankFacts& facts : std::span(cluster.ranks).first(std::min(kMostRows, cluster.ranks.size()))) {
    const Job& job = facts.job;
    table.push_back({std::to_string(job.rank), format("{}/{}", job.local_rank, job.local_world),
                     std::to_string(job.node_rank), std::to_string(facts.pid),
                     facts.gpu < 0 ? "-" : format("cuda:{}", facts.gpu), facts.cores.mask,
                     base::printable(job.host)});
  }
  const auto more = cluster.ranks.size() - (table.size() - 1);
  return report::aligned(table) + (more > 0 ? format("and {} more: see --json\n", more) : "");
}

Findings uneven_machines(const Cluster& cluster) {
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

// --- what must be the same on all ranks ---

using Values = std::map<std::string, std::string>;

// The differences between the ranks' values, of those with such a name.
Findings differences(const Cluster& cluster, Values RankFacts::*values,
                     bool (*has_such_name)(const std::string& name)) {
  std::vector<comm::Facts> all;
  for (const RankFacts& facts : cluster.ranks) {
    comm::Facts& own = all.emplace_back();
    for (const auto& [name, value] : facts.*values)
      if (has_such_name(name)) own.emplace_back(name, value);
  }
  const auto text = comm::difference(all);
  return text.empty() ? Findings() : Findings{{text}};
}

// Ranks on which these differ may still train together.
bool may_differ(const std::string& version) {
  return version == "kernel" || version == "CUDA driver" || version == "compiler";
}

Findings different_programs(const Cluster& cluster) {
  return differences(cluster, &RankFacts::versions,
                     [](const std::string& name) { return !may_differ(name); });
}

Findings different_systems(const Cluster& cluster) {
  if (!different_programs(cluster).empty()) return {};
  return differences(cluster, &RankFacts::versions, may_differ);
}

// Launchers set their own variables differently on each rank. People set these.
Findings different_variables(const Cluster& cluster) {
  return differences(cluster, &RankFacts::variables, [](const std::string& name) {
    return base::is_among(name,
                          {"NCCL_*", "GLOO_*", "OMP_*", "MKL_*", "KMP_*", "TORCH_*", "LOCKSTEP_*", "ATEN_*"});
  });
}

std::string versions_text(const Cluster& cluster) {
  std::vector<std::string> parts;
  const auto& versions = cluster.ranks.front().versions;
  for (const char* name :
       {"lockstep", "commit", "libtorch", "MPI", "CUDA", "NCCL", "CUDA driver", "Python"}) {
    const auto found = versions.find(name);
    if (found == versions.end() || found->second == "not built in") continue;
    parts.push_back(found->second.starts_with(name) ? found->second : format("{} {}", name, found->second));
  }
  return base::join(parts, ", ");
}

// --- variables that slow a run down ---

bool is_on(const std::string& value) {
  return !value.empty() && value != "0" && value != "false" && value != "FALSE" && value != "no";
}
bool is_no_count(const std::string& value) {
  return value.empty() || value.find_first_not_of("0123456789,") != std::string::npos || value[0] == '0';
}
bool is_detail(const std::string& value) {
  return value == "DETAIL";
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
    {"OMP_NUM_THREADS", is_no_count, "is not a number of threads, and libraries interpret it differently"},
    {"OMP_PROC_BIND", binds, "binds the threads of every rank, possibly to the same cores"},
    {"KMP_AFFINITY", binds, "binds the threads of every rank, possibly to the same cores"},
    {"GOMP_CPU_AFFINITY", is_on, "binds the threads of every rank to the same cores"},
    {"NCCL_P2P_DISABLE", is_on, "prevents direct copies between the GPUs of a node"},
    {"NCCL_SHM_DISABLE", is_on, "sends messages within a node over the network"},
    {"NCCL_IB_DISABLE", is_on, "stops NCCL from using InfiniBand"},
    {"TORCH_DISTRIBUTED_DEBUG", is_detail, "compares every collective before it runs, which is slow"},
    {"CUDA_LAUNCH_BLOCKING", is_on, "waits for every kernel, which is slow"},
    {"LD_PRELOAD", is_on, "loads a library before all others"},
};

Findings odd_variables(const RankFacts& facts, const Cluster&) {
  std::vector<std::string> parts;
  for (const OddVariable& row : kOdd) {
    const auto found = facts.variables.find(row.name);
    if (found != facts.variables.end() && row.is_odd(found->second))
      parts.push_back(format("{}={} {}", row.name, base::printable(found->second), row.why));
  }
  if (!facts.missing_tmpdir.empty())
    parts.push_back(format("TMPDIR={} is not a folder on {}, and MPI needs it for its sockets",
                           base::printable(facts.missing_tmpdir), facts.job.host));
  return parts.empty() ? Findings() : Findings{{base::join(parts, "; ")}};
}

}  // namespace

std::vector<Check> checks() {
  std::vector<Check> all = {
      {"launcher",
       {{kFailure,
         [](const RankFacts& facts, const Cluster&) {
           const Job& job = facts.job;
           return job.phantom.empty() ? Findings() : Findings{{job.phantom, job.phantom_hint}};
         },
         "start the ranks with srun, or with the mpirun that belongs to this MPI"},
        {kWarning,
         [](const RankFacts& facts, const Cluster&) {
           Findings problems;
           for (const auto& text : facts.job.warnings) problems.push_back({text});
           return problems;
         },
         "look up the deciding variables in docs/reference/launchers.md"}},
       launcher_text},
      {"ranks",
       {{kWarning, uneven_machines,
         "request the same ranks per node (--ntasks-per-node, mpiprocs): steps wait for the fullest node"}},
       ranks_text,
       rank_table},
      {"versions",
       {{kFailure, different_programs,
         "start the same installation on every node, from a shared file system"},
        {kWarning, different_systems,
         "request nodes of one kind; if a run fails only on some nodes, check this first"}},
       versions_text},
      {"collection",
       {{kWarning,
         [](const RankFacts& facts, const Cluster&) {
           Findings problems;
           for (const auto& [name, error] : facts.failed)
             problems.push_back({format("cannot examine the {}: {}", name, error)});
           return problems;
         },
         "do not rely on the values reported for it"}}},
      {"variables",
       {{kWarning, odd_variables,
         "unset variables that you did not set on purpose: check ~/.bashrc, modules and the job script"},
        {kWarning, different_variables, "set the same on every rank: srun --export=ALL, mpirun -x NAME"}},
       [](const Cluster&) { return std::string("no variable is set that is known to slow a run"); }}};
  for (const Check& check : node_checks()) all.push_back(check);
  return all;
}

Findings evaluate(const Check& check, const Cluster& cluster) {
  Findings findings;
  try {
    for (const Rule& rule : check.rules) append(findings, apply(rule, cluster));
    if (check.ok && findings.empty()) findings.push_back(ok(check.ok(cluster)));
    if (check.drawing && !findings.empty()) findings.front().drawing = check.drawing(cluster);
  } catch (const std::exception& error) {  // for example, of a variable that is not a number
    findings.push_back(failure_of(error));
  }
  for (Finding& finding : findings) finding.check = std::string(check.name);
  return findings;
}

Findings of_ranks(const std::vector<std::pair<int, Finding>>& found, size_t world) {
  Findings findings;
  launch::Grouped groups;  // one for each finding
  for (const auto& [rank, finding] : found) {
    launch::add(groups, finding.says, rank);
    if (groups.size() > findings.size()) findings.push_back(finding);
  }
  for (size_t i = 0; i < findings.size(); ++i)
    findings[i].says = launch::with_ranks(findings[i].says, groups[i].second, world);
  return findings;
}

Finding failure_of(const std::exception& error) {
  const Fault fault = fault_of(error);
  return failure(
      fault.what.substr(0, fault.what.find('\n')) + (fault.where.empty() ? "" : " (" + fault.where + ")"),
      fault.hint.empty() ? "report it as a bug if nothing here explains it" : fault.hint);
}

std::vector<Machine> machines_of(const Cluster& cluster) {
  std::vector<Machine> machines;
  for (const RankFacts& facts : cluster.ranks) {
    const auto same = std::ranges::find_if(
        machines, [&](const Machine& machine) { return machine.front()->machine == facts.machine; });
    same == machines.end() ? machines.push_back({&facts}) : same->push_back(&facts);
  }
  return machines;
}

std::string bytes_text(long long number) {
  return number < 0 ? "unlimited" : report::bytes_text(static_cast<double>(number));
}

std::string some_of(std::vector<std::string> parts, size_t most, const char* between) {
  if (parts.size() > most) {
    const size_t more = parts.size() - most;
    parts.resize(most);
    parts.push_back(format("and {} more", more));
  }
  return base::join(parts, between);
}

}  // namespace lockstep::doctor
