// Who started the ranks, by which word, and what speaks against it.
#include "lockstep/base/format.h"
#include "lockstep/doctor/checks.h"
#include "lockstep/launch/grouped.h"

namespace lockstep::doctor {
namespace {

std::string because_of(const Job& job) {
  const auto found = job.because.find("launcher");
  return found == job.because.end() ? "" : found->second;
}

}  // namespace

Findings judge_launcher(const Picture& picture) {
  launch::Grouped launchers, phantoms, warnings;
  for (const Facts& facts : picture.ranks) {
    const Job& job = facts.job;
    launch::add(launchers, format("{} ({})", job.launcher, because_of(job)), job.rank);
    if (!job.phantom.empty()) launch::add(phantoms, job.phantom, job.rank);
    for (const auto& warning : job.warnings) {
      if (job.phantom.empty() || !warning.starts_with(job.phantom)) launch::add(warnings, warning, job.rank);
    }
  }
  Findings findings;
  for (const auto& [phantom, ranks] : phantoms) {
    findings.push_back(
        fail(phantom, "start the ranks with srun or mpirun; to run one on purpose: --launcher none"));
  }
  for (const auto& [warning, ranks] : warnings)
    findings.push_back(
        warn(launch::with_ranks(warning, ranks, picture.ranks.size()), "see docs/launchers.md"));
  if (!findings.empty()) return findings;
  for (const auto& [launcher, ranks] : launchers)
    findings.push_back(fine(launch::with_ranks(launcher, ranks, picture.ranks.size())));
  return findings;
}

}  // namespace lockstep::doctor
