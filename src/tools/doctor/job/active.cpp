#include "tools/doctor/job/active.h"

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::doctor {
namespace {

using namespace std::chrono_literals;

constexpr size_t kNamedSilent = 8;

// What hangs past its limit is told by the watchdog; each of these ends by itself before.
constexpr ActiveCheck kActiveChecks[] = {
    {"deadline", 20s, run_deadline}, {"interfaces", 12s, run_interfaces},
    {"reach", 12s, run_reach},       {"clocks", 20s, run_clocks},
    {"folders", 30s, run_folders},   {"shared", 35s, run_shared},
    {"gloo", 35s, run_gloo},         {"mpi", 35s, run_mpi},
    {"nccl", 40s, run_nccl},
};

std::string rank_text(const Bench& bench, int rank) {
  for (const RankFacts& facts : bench.picture.ranks)
    if (facts.job.rank == rank) return format("rank {} (host {}, pid {})", rank, facts.job.host, facts.pid);
  return format("rank {}", rank);
}

}  // namespace

// To add one: `Findings run_NAME(const Bench&)` in a file of its own, declared in active.h, and its row here.
std::span<const ActiveCheck> active_checks() {
  return kActiveChecks;
}

Finding silence(const Bench& bench, const Heard& heard) {
  const auto& silent = heard.silent;
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(silent.size(), kNamedSilent); ++i)
    names.push_back(rank_text(bench, silent[i]));
  if (silent.size() > kNamedSilent) names.push_back(format("and {} more", silent.size() - kNamedSilent));
  return fail(
      names.empty() ? heard.why : format("{} did not answer: {}", base::join(names, ", "), heard.why),
      "look at that process: is it stopped (state T in ps), has it died, or does its node not answer?");
}

}  // namespace lockstep::doctor
