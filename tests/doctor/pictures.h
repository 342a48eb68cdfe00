#pragma once
// Made-up clusters for the doctor's pure checks.

#include "tools/doctor/node/checks.h"

namespace lockstep::doctor::pictures {

/// Ranks 0, 1, ... on machines of so many each; a core a rank.
inline Picture cluster(std::vector<int> ranks_a_machine) {
  Picture picture;
  int world = 0;
  for (const int ranks : ranks_a_machine) world += ranks;
  for (size_t node = 0; node < ranks_a_machine.size(); ++node) {
    for (int local = 0; local < ranks_a_machine[node]; ++local) {
      RankFacts facts;
      facts.job = {.rank = static_cast<int>(picture.ranks.size()),
                   .world = world,
                   .local_rank = local,
                   .local_world = ranks_a_machine[node],
                   .node_rank = static_cast<int>(node),
                   .nodes = static_cast<int>(ranks_a_machine.size()),
                   .host = "n" + std::to_string(node),
                   .launcher = "openmpi"};
      facts.machine = facts.job.host;
      facts.cores = {
          .mask = std::to_string(local), .machine_cores = 3, .machine_threads = 3, .numa = {"0-3"}};
      facts.memory = {.total = 8LL << 30,
                      .available = 8LL << 30,
                      .swap = 0,
                      .shm_total = 1LL << 30,
                      .shm_free = 1LL << 30};
      facts.limits.files = {1 << 16, 1 << 16};
      facts.cpu_capability = "AVX2";
      facts.cpu_flags = {"avx2"};
      facts.versions = {{"lockstep", "1"}, {"libtorch", "2"}};
      picture.ranks.push_back(facts);
    }
  }
  return picture;
}

/// The one finding that there is.
inline Finding only(const Findings& findings) {
  return findings.size() == 1 ? findings.front()
                              : Finding{FindingLevel::failure, std::to_string(findings.size()) + " findings"};
}

/// "warning: 2 CPUs ..."
inline std::string said(const Findings& findings) {
  std::string text;
  for (const Finding& finding : findings)
    text += std::string(name_of(finding.verdict)) + ": " + finding.says + "\n";
  return text;
}

}  // namespace lockstep::doctor::pictures
