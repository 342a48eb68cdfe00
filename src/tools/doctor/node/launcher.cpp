// Who started the ranks, by which word, what speaks against it, and where each rank is.
#include <algorithm>
#include <set>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/process/grouped.h"
#include "tools/doctor/node/checks.h"
#include "tools/doctor/node/judging.h"

namespace lockstep::doctor {
namespace {

constexpr size_t kMostRows = 128;

std::string because_of(const Job& job, const char* field) {
  const auto found = job.because.find(field);
  return found == job.because.end() ? "not asked yet" : found->second;
}

Finding started_by(const Picture& picture) {
  launch::Grouped launchers;
  for (const RankFacts& facts : picture.ranks) {
    const Job& job = facts.job;
    const std::string scheduler =
        job.scheduler == "none" ? "" : format(", {} job {}", job.scheduler, job.job_id);
    launch::add(launchers, format("{} ({}){}", job.launcher, because_of(job, "launcher"), scheduler),
                job.rank);
  }
  std::vector<std::string> texts;
  for (const auto& [text, ranks] : launchers)
    texts.push_back(launch::with_ranks(text, ranks, picture.ranks.size()));
  return fine(base::join(texts, "; "));
}

std::string gpu_text(const RankFacts& facts) {
  return facts.gpu < 0 ? "-" : format("cuda:{}", facts.gpu);
}

std::string rank_table(const Picture& picture) {
  std::string text = format("{:>5}  {:>7}  {:>5}  {:>8}  {:<7}  {:<12}  {}\n", "rank", "local", "node", "pid",
                            "gpu", "may use CPUs", "host");
  for (size_t i = 0; i < std::min(kMostRows, picture.ranks.size()); ++i) {
    const RankFacts& facts = picture.ranks[i];
    const Job& job = facts.job;
    text += format("{:>5}  {:>7}  {:>5}  {:>8}  {:<7}  {:<12}  {}\n", job.rank,
                   format("{}/{}", job.local_rank, job.local_world), job.node_rank, facts.pid,
                   gpu_text(facts), facts.cores.mask, base::printable(job.host));
  }
  if (picture.ranks.size() > kMostRows)
    text += format("and {} more: see --json\n", picture.ranks.size() - kMostRows);
  return text;
}

std::vector<int> missing_of(const Picture& picture) {
  std::set<int> here;
  for (const RankFacts& facts : picture.ranks) here.insert(facts.job.rank);
  std::vector<int> missing;
  for (int rank = 0; rank < picture.world(); ++rank) {
    if (!here.contains(rank)) missing.push_back(rank);
  }
  return missing;
}

std::string counts_by_host(const std::vector<Machine>& machines) {
  std::vector<std::string> parts;
  for (const Machine& machine : machines)
    parts.push_back(format("{}: {}", machine.front()->job.host, machine.size()));
  return base::join(parts, ", ");
}

}  // namespace

Findings judge_launcher(const Picture& picture) {
  Findings findings = of_ranks(
      picture,
      [](const RankFacts& facts) -> std::optional<Finding> {
        if (facts.job.phantom.empty()) return std::nullopt;
        return fail(facts.job.phantom, facts.job.phantom_hint);
      },
      [&] { return started_by(picture); });
  launch::Grouped warnings;
  for (const RankFacts& facts : picture.ranks) {
    for (const auto& warning : facts.job.warnings) launch::add(warnings, warning, facts.job.rank);
  }
  for (const auto& [text, ranks] : warnings)
    findings.push_back(warn(launch::with_ranks(text, ranks, picture.ranks.size()),
                            "docs/launchers.md tells who is believed, and why"));
  return findings;
}

Findings judge_ranks(const Picture& picture) {
  const auto missing = missing_of(picture);
  const auto machines = machines_of(picture);
  if (!missing.empty() && picture.ranks.size() > 1) {
    return {fail(format("{} of {} did not come", ranks_in(missing), picture.world()),
                 "look in their log for an earlier error; is their node up?", rank_table(picture))};
  }
  const std::string says =
      format("{} rank{} on {} machine{}", picture.ranks.size(), picture.ranks.size() == 1 ? "" : "s",
             machines.size(), machines.size() == 1 ? "" : "s");
  const bool even = std::all_of(machines.begin(), machines.end(), [&](const Machine& machine) {
    return machine.size() == machines.front().size();
  });
  if (even) return {fine(says, rank_table(picture))};
  return {warn(
      format("{}, unevenly ({})", says, counts_by_host(machines)),
      "every step waits for the fullest node: ask for as many ranks on each (--ntasks-per-node, mpiprocs)",
      rank_table(picture))};
}

}  // namespace lockstep::doctor
