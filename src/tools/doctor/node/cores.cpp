// Which cores the ranks run on: two on one, more threads than cores, and which memory and GPU are near.
#include <algorithm>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/process/cpus.h"
#include "tools/doctor/node/checks.h"
#include "tools/doctor/node/judging.h"

namespace lockstep::doctor {
namespace {

constexpr const char* kBind =
    "let the launcher give each rank cores of its own: srun --cpu-bind=cores, mpirun --bind-to core --map-by "
    "slot:PE=N; see that no taskset stands before the program";

const std::string& cores_of(const RankFacts& facts) {
  return facts.cores.whole.empty() ? facts.cores.mask : facts.cores.whole;
}

// Ranks that share cores, each with all that it overlaps.
std::vector<Machine> sharing(const Machine& machine) {
  std::vector<Machine> groups;
  for (const RankFacts* facts : machine) {
    Machine group = {facts};
    for (auto other = groups.begin(); other != groups.end();) {
      const bool meets = std::any_of(other->begin(), other->end(), [&](const RankFacts* member) {
        return overlap(cores_of(*member), cores_of(*facts));
      });
      if (!meets) {
        ++other;
        continue;
      }
      group.insert(group.begin(), other->begin(), other->end());
      other = groups.erase(other);
    }
    groups.push_back(group);
  }
  return groups;
}

std::vector<std::string> masks_of(const Machine& machine) {
  std::vector<std::string> masks;
  for (const RankFacts* facts : machine) masks.push_back(facts->cores.mask);
  return masks;
}

bool all_equal(const std::vector<std::string>& masks) {
  return std::all_of(masks.begin(), masks.end(), [&](const auto& mask) { return mask == masks.front(); });
}

int sum_of_threads(const std::vector<std::string>& masks) {
  int sum = 0;
  for (const auto& mask : masks) sum += threads_in({mask});
  return sum;
}

std::optional<Finding> crowded(const Machine& group) {
  if (group.size() < 2) return std::nullopt;
  const auto masks = masks_of(group);
  const int threads = threads_in(masks);
  if (static_cast<size_t>(threads) < group.size()) {
    return warn(format("{} have {} CPU{} to share ({})", ranks_in(group), threads, threads == 1 ? "" : "s",
                       group.front()->cores.mask),
                kBind);
  }
  if (all_equal(masks)) return std::nullopt;
  if (threads_in(masks) == sum_of_threads(masks))
    return warn(format("{} are bound to hardware threads of the same cores ({})", ranks_in(group),
                       base::join(masks, " and ")),
                kBind);
  return warn(format("{} are bound to CPUs that overlap ({})", ranks_in(group), base::join(masks, " and ")),
              kBind);
}

// outside a batch job nobody else was given the rest
std::optional<Finding> idle(const Machine& machine) {
  const RankFacts& first = *machine.front();
  const int used = threads_in(masks_of(machine)), all = first.cores.machine_threads;
  if (first.job.scheduler != "none" || machine.size() < 2 || used * 2 > all) return std::nullopt;
  return warn(
      format("{} may use {} of {} CPUs", ranks_in(machine), used, all),
      "mpirun binds each rank to one core: --bind-to none, or --map-by slot:PE=N, gives them the rest");
}

std::string cores_text(const Picture& picture) {
  const Cores& cores = picture.ranks.front().cores;
  std::string text = format("{} of {} cores", cores.cores, cores.machine_cores);
  if (cores.quota > 0) text += format(", {:.2g} cores' time by {}", cores.quota, cores.quota_file);
  return picture.ranks.size() == 1 ? "this rank may use " + text
                                   : "no two ranks share a CPU; rank 0 may use " + text;
}

// by hardware threads, as the run counts its share
int sharers_of(const RankFacts& facts, const Picture& picture) {
  return static_cast<int>(
      std::count_if(picture.ranks.begin(), picture.ranks.end(), [&](const RankFacts& other) {
        return other.machine == facts.machine && overlap(other.cores.mask, facts.cores.mask);
      }));
}

launch::ThreadShare share_of(const RankFacts& facts, const Picture& picture) {
  const Cores& cores = facts.cores;
  const auto quota =
      cores.quota > 0 ? std::optional(launch::CpuQuota{cores.quota, cores.quota_file}) : std::nullopt;
  return launch::choose_threads(facts.job, facts.variables, {cores.mask, cores.cores, cores.machine_cores},
                                sharers_of(facts, picture), quota);
}

std::vector<size_t> near(const std::string& mask, const std::vector<std::string>& places) {
  std::vector<size_t> found;
  for (size_t i = 0; i < places.size(); ++i) {
    if (overlap(mask, places[i])) found.push_back(i);
  }
  return found;
}

std::string row(const std::string& numa, size_t index, const Machine& machine) {
  std::vector<int> ranks;
  std::vector<std::string> gpus;
  for (const RankFacts* facts : machine) {
    if (overlap(facts->cores.mask, numa)) ranks.push_back(facts->job.rank);
    for (size_t gpu = 0; gpu < facts->cores.gpu_near.size(); ++gpu) {
      if (!overlap(facts->cores.gpu_near[gpu], numa)) continue;
      const bool taken = facts->gpu == static_cast<int>(gpu);
      if (taken) gpus.push_back(format("{} (rank {})", facts->gpus.at(gpu).bus, facts->job.rank));
    }
  }
  return format("{}  NUMA {}  CPUs {:<12}  {}{}\n", machine.front()->job.host, index, numa,
                ranks.empty() ? "no rank" : ranks_in(ranks),
                gpus.empty() ? "" : "  GPU " + base::join(gpus, ", "));
}

std::string drawing(const Picture& picture) {
  std::string text;
  for (const Machine& machine : machines_of(picture)) {
    const auto& numa = machine.front()->cores.numa;
    if (numa.size() < 2 && machine.front()->gpus.empty()) continue;
    for (size_t i = 0; i < numa.size(); ++i) text += row(numa[i], i, machine);
  }
  return text;
}

std::optional<Finding> far_from_gpu(const RankFacts& facts) {
  if (facts.gpu < 0 || static_cast<size_t>(facts.gpu) >= facts.cores.gpu_near.size()) return std::nullopt;
  const std::string& beside = facts.cores.gpu_near[static_cast<size_t>(facts.gpu)];
  if (beside.empty() || overlap(beside, facts.cores.mask)) return std::nullopt;
  return warn(
      format("cuda:{} is beside CPUs {}, and the rank may use {} alone", facts.gpu, beside, facts.cores.mask),
      "bind ranks beside their GPUs: srun --gpu-bind=closest, or a --cpu-bind map");
}

}  // namespace

Findings judge_cores(const Picture& picture) {
  return of_machines(
      picture,
      [](const Machine& machine) {
        Findings findings;
        for (const Machine& group : sharing(machine)) {
          if (auto finding = crowded(group)) findings.push_back(*finding);
        }
        if (auto finding = idle(machine); finding && findings.empty()) findings.push_back(*finding);
        return findings;
      },
      [&] { return fine(cores_text(picture)); });
}

Findings judge_threads(const Picture& picture) {
  return of_ranks(
      picture,
      [&](const RankFacts& facts) -> std::optional<Finding> {
        const auto share = share_of(facts, picture);
        if (share.warnings.empty()) return std::nullopt;
        return warn(share.warnings.front(),
                    "set OMP_NUM_THREADS to the share, or leave it out: lockstep takes the share");
      },
      [&] {
        const auto share = share_of(picture.ranks.front(), picture);
        return fine(format("{} a rank ({})", share.threads, share.because));
      });
}

Findings judge_locality(const Picture& picture) {
  return of_ranks(picture, far_from_gpu, [&] {
    const RankFacts& first = picture.ranks.front();
    const size_t spans = near(first.cores.mask, first.cores.numa).size();
    return fine(format("{} NUMA node{}; rank 0 runs on {}", first.cores.numa.size(),
                       first.cores.numa.size() == 1 ? "" : "s", spans),
                drawing(picture));
  });
}

}  // namespace lockstep::doctor
