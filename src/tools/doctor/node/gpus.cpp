// The ranks' GPUs: one each, known by its UUID, of one kind, and one that libtorch was built for.
#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "tools/doctor/node/checks.h"
#include "tools/doctor/node/judging.h"

namespace lockstep::doctor {
namespace {

const Gpu* own_gpu(const RankFacts& facts) {
  return facts.gpu >= 0 && static_cast<size_t>(facts.gpu) < facts.gpus.size()
             ? &facts.gpus[static_cast<size_t>(facts.gpu)]
             : nullptr;
}

// The parts of a divided GPU (MIG) have a UUID each and one bus; NCCL takes one rank of them.
Findings shared(const Picture& picture) {
  std::map<std::string, std::vector<int>> by_uuid, by_bus;
  for (const RankFacts& facts : picture.ranks) {
    const Gpu* gpu = own_gpu(facts);
    if (!gpu || gpu->uuid.empty()) continue;
    by_uuid[gpu->uuid].push_back(facts.job.rank);
    if (!gpu->bus.empty())
      by_bus[format("{} on node {}", gpu->bus, facts.job.node_rank)].push_back(facts.job.rank);
  }
  const auto findings_of = [](const auto& ranks_of, const char* takes) {
    Findings findings;
    for (const auto& [name, ranks] : ranks_of) {
      if (ranks.size() < 2) continue;
      findings.push_back(
          fail(format("{} take {} ({})", ranks_in(ranks), takes, name),
               "ask the scheduler for a GPU a rank (--gpus-per-node, ngpus=), start fewer ranks a "
               "node, or train on CPUs: launch.device=cpu"));
    }
    return findings;
  };
  const auto same = findings_of(by_uuid, "one GPU");
  return same.empty() ? findings_of(by_bus, "parts (MIG) of one GPU") : same;
}

Findings mixed(const Picture& picture) {
  std::map<std::string, std::vector<int>> kinds;
  for (const RankFacts& facts : picture.ranks) {
    const Gpu* gpu = own_gpu(facts);
    kinds[gpu ? gpu->name : "none"].push_back(facts.job.rank);
  }
  if (kinds.size() < 2) return {};
  std::vector<std::string> parts;
  for (const auto& [name, ranks] : kinds) parts.push_back(format("{} on {}", name, ranks_in(ranks)));
  const std::string says = "the ranks' GPUs differ: " + base::join(parts, ", ");
  if (kinds.contains("none")) {
    return {
        fail(says,
             "some ranks would train on CPUs and wait for ever for the rest: ask for GPUs on every node, or "
             "set launch.device to cpu")};
  }
  return {warn(says, "every step waits for the slowest: ask for nodes of one kind (-C, gpu_type)")};
}

std::string gpu_table(const Picture& picture) {
  std::string text;
  for (const RankFacts& facts : picture.ranks) {
    const Gpu* gpu = own_gpu(facts);
    if (!gpu) continue;
    text += format("rank {}  cuda:{}  {}  {}  {}  sm_{}{}  {}\n", facts.job.rank, facts.gpu, gpu->uuid,
                   gpu->name, bytes(gpu->memory), gpu->major, gpu->minor, gpu->bus);
  }
  return text;
}

Finding gpus_in_use(const Picture& picture) {
  const RankFacts& first = picture.ranks.front();
  const Gpu* gpu = own_gpu(first);
  if (first.wanted == "cpu") return fine("none asked for");
  if (!gpu) return fine("none, the CPU computes: " + first.gpus_because);
  return fine(format("one a rank: {}", gpu->name), gpu_table(picture));
}

// "sm_90" runs on 9.0 and later of its generation, "sm_90a" there alone, "compute_90" on all that came later
bool runs_on(const std::string& architecture, const Gpu& gpu) {
  const auto line = architecture.find('_');
  if (line == std::string::npos) return false;
  const int number = std::atoi(architecture.c_str() + line + 1), own = gpu.major * 10 + gpu.minor;
  const bool exact = std::isalpha(static_cast<unsigned char>(architecture.back()));
  if (exact) return number == own;
  if (architecture.starts_with("compute_")) return number <= own;
  return number / 10 == gpu.major && number <= own;
}

std::optional<Finding> unknown_gpu(const RankFacts& facts) {
  const Gpu* gpu = own_gpu(facts);
  if (!gpu || gpu->major == 0 || facts.torch_archs.empty()) return std::nullopt;
  const bool known = std::any_of(facts.torch_archs.begin(), facts.torch_archs.end(),
                                 [&](const auto& architecture) { return runs_on(architecture, *gpu); });
  if (known) return std::nullopt;
  return fail(format("libtorch was built for {}, and {} is sm_{}{}", base::join(facts.torch_archs, " "),
                     gpu->name, gpu->major, gpu->minor),
              "build with a libtorch for this GPU (docs/install.md)");
}

std::optional<Finding> unused_instructions(const RankFacts& facts) {
  const auto has = [&](const char* flag) {
    return std::find(facts.cpu_flags.begin(), facts.cpu_flags.end(), flag) != facts.cpu_flags.end();
  };
  const std::string& used = facts.cpu_capability;
  if (has("avx2") && used != "AVX2" && used != "AVX512") {
    return warn(format("libtorch computes without AVX2 ({}), which this processor has", used),
                "unset ATEN_CPU_CAPABILITY");
  }
  if (has("avx512f") && used != "AVX512" && facts.variables.contains("ATEN_CPU_CAPABILITY")) {
    return warn(format("libtorch computes with {}, and this processor has AVX-512", used),
                "unset ATEN_CPU_CAPABILITY");
  }
  if (!has("avx2") && !facts.cpu_flags.empty())
    return warn("this processor has no AVX2", "training on its cores is slow; ask for newer nodes");
  return std::nullopt;
}

Findings uneven_instructions(const Picture& picture) {
  std::map<std::string, std::vector<int>> kinds;
  for (const RankFacts& facts : picture.ranks) kinds[facts.cpu_capability].push_back(facts.job.rank);
  if (kinds.size() < 2) return {};
  std::vector<std::string> parts;
  for (const auto& [name, ranks] : kinds) parts.push_back(format("{} on {}", name, ranks_in(ranks)));
  return {warn(
      "libtorch computes differently on the ranks: " + base::join(parts, ", "),
      "speeds and last bits differ: ask for nodes of one kind, and set ATEN_CPU_CAPABILITY on all or none")};
}

std::string capability(const RankFacts& facts) {
  std::string text = format("CPU capability {}", facts.cpu_capability);
  if (!facts.cpu_flags.empty()) text += format(" (the processor has {})", base::join(facts.cpu_flags, " "));
  if (!facts.torch_archs.empty()) text += ", GPUs " + base::join(facts.torch_archs, " ");
  return text;
}

}  // namespace

Findings judge_gpus(const Picture& picture) {
  Findings findings = shared(picture);
  const auto without = of_ranks(
      picture,
      [](const RankFacts& facts) -> std::optional<Finding> {
        if (facts.device_error.empty()) return std::nullopt;
        return fail(facts.device_error, "ask for as many GPUs a node as ranks, or set launch.device to cpu");
      },
      [&] { return gpus_in_use(picture); });
  if (without.front().verdict != FindingLevel::ok)
    findings.insert(findings.end(), without.begin(), without.end());
  if (findings.empty()) findings = mixed(picture);
  return findings.empty() ? without : findings;
}

Findings judge_libtorch(const Picture& picture) {
  Findings findings = uneven_instructions(picture);
  const auto more = of_ranks(
      picture,
      [](const RankFacts& facts) {
        auto finding = unknown_gpu(facts);
        return finding ? finding : unused_instructions(facts);
      },
      [&] { return fine(capability(picture.ranks.front())); });
  if (findings.empty() || more.front().verdict != FindingLevel::ok)
    findings.insert(findings.end(), more.begin(), more.end());
  return findings;
}

}  // namespace lockstep::doctor
