// The same program and libraries on every rank, and facts that could not be gathered.
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/meet/join.h"
#include "tools/doctor/node/checks.h"
#include "tools/doctor/node/judging.h"

namespace lockstep::doctor {
namespace {

// Ranks that differ in one of these must not train together; in another they may.
constexpr const char* kStrict[] = {"lockstep", "commit", "libtorch", "MPI", "CUDA", "NCCL"};
constexpr const char* kLoose[] = {"kernel", "CUDA driver", "compiler"};

std::string difference_in(const Picture& picture, std::span<const char* const> names) {
  std::vector<comm::Facts> all;
  for (const RankFacts& facts : picture.ranks) {
    comm::Facts own;
    for (const char* name : names) {
      const auto found = facts.versions.find(name);
      own.emplace_back(name, found == facts.versions.end() ? "" : found->second);
    }
    all.push_back(own);
  }
  return comm::difference(all);
}

std::string versions_text(const RankFacts& facts) {
  std::vector<std::string> parts;
  for (const char* name : {"lockstep", "commit", "libtorch", "MPI", "CUDA", "NCCL", "CUDA driver"}) {
    const auto found = facts.versions.find(name);
    if (found == facts.versions.end() || found->second == "not built in") continue;
    parts.push_back(found->second.starts_with(name) ? found->second : format("{} {}", name, found->second));
  }
  return base::join(parts, ", ");
}

}  // namespace

Findings judge_versions(const Picture& picture) {
  const auto strict = difference_in(picture, kStrict), loose = difference_in(picture, kLoose);
  if (!strict.empty())
    return {fail(
        strict, "start the same installation on every node: is it on a file system that all of them share?")};
  if (!loose.empty())
    return {warn(loose, "ask for nodes of one kind; where a run fails on some alone, look here first")};
  return {fine(versions_text(picture.ranks.front()))};
}

Findings judge_facts(const Picture& picture) {
  Findings findings;
  for (const RankFacts& facts : picture.ranks) {
    for (const auto& [name, error] : facts.failed)
      findings.push_back(warn(format("rank {} could not look at its {}: {}", facts.job.rank, name, error),
                              "what is reported about it may be wrong"));
  }
  return findings;
}

}  // namespace lockstep::doctor
