// How rules are evaluated.
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/launch/process/report.h"
#include "tools/doctor/rules.h"

namespace lockstep::doctor {
namespace {

Finding finding_of(const Rule& rule, const Problem& problem) {
  return {rule.level, problem.says, problem.remedy.empty() ? rule.remedy : problem.remedy};
}

Findings apply(const Rule& rule, const Cluster& cluster) {
  Findings findings;
  if (const auto* of_job = std::get_if<2>(&rule.problems)) {
    for (const Problem& problem : (*of_job)(cluster)) findings.push_back(finding_of(rule, problem));
  } else if (const auto* of_machine = std::get_if<1>(&rule.problems)) {
    const auto machines = machines_of(cluster);
    for (const Machine& machine : machines)
      for (const Problem& problem : (*of_machine)(machine)) {
        findings.push_back(finding_of(rule, problem));
        if (machines.size() > 1) findings.back().says = machine.front()->job.host + ": " + problem.says;
      }
  } else {
    std::vector<std::pair<int, Finding>> found;
    for (const RankFacts& facts : cluster.ranks)
      for (const Problem& problem : std::get<0>(rule.problems)(facts, cluster))
        found.emplace_back(facts.job.rank, finding_of(rule, problem));
    findings = of_ranks(found, cluster.ranks.size());
  }
  return findings;
}

}  // namespace

std::vector<Check> checks() {
  std::vector<Check> all;
  for (const auto& table : {job_rules(), node_rules()})
    all.insert(all.end(), table.checks.begin(), table.checks.end());
  return all;
}

Findings evaluate(const Check& check, const Cluster& cluster) {
  Findings findings;
  try {
    for (const auto& table : {job_rules(), node_rules()})
      for (const Rule& rule : table.rules)
        if (rule.check == check.name) append(findings, apply(rule, cluster));
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
  std::vector<std::vector<int>> ranks;
  for (const auto& [rank, finding] : found) {
    const auto same = std::ranges::find(findings, finding.says, &Finding::says);
    if (same == findings.end()) {
      findings.push_back(finding);
      ranks.push_back({rank});
    } else {
      ranks[static_cast<size_t>(same - findings.begin())].push_back(rank);
    }
  }
  for (size_t i = 0; i < findings.size(); ++i)
    findings[i].says = launch::with_ranks(findings[i].says, ranks[i], world);
  return findings;
}

Finding failure_of(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  const std::string what = error.what();
  const std::string where = known && !known->where().empty() ? " (" + known->where() + ")" : "";
  return failure(what.substr(0, what.find('\n')) + where,
                 known ? known->hint() : "if nothing here explains it, report it as a bug");
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
  if (number < 0) return "unlimited";
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(number);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  return unit == 0 || value >= 100 ? format("{:.0f} {}", value, units[unit])
                                   : format("{:.1f} {}", value, units[unit]);
}

std::string counted(size_t number, const char* what) {
  return format("{} {}{}", number, what, number == 1 ? "" : "s");
}

std::string ranks_in(const std::vector<int>& ranks) {
  if (ranks.size() == 1) return format("rank {}", ranks.front());
  if (ranks.size() == 2) return format("ranks {} and {}", ranks[0], ranks[1]);
  return "ranks " + launch::ranges(ranks);
}

}  // namespace lockstep::doctor
