#pragma once
// The table of rules over all ranks' facts. Rules are pure functions, so a test can make up a cluster.

#include <exception>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tools/doctor/facts.h"

namespace lockstep::doctor {

/// What a rule found; `remedy` replaces the rule's own.
struct Problem {
  std::string says;
  std::string remedy = {};
};
using Problems = std::vector<Problem>;
/// The ranks of one machine, in order.
using Machine = std::vector<const RankFacts*>;

/// One row: what is wrong, how bad that is, and what to do. Of each rank, each machine, or all ranks.
struct Rule {
  std::string_view check;
  FindingLevel level;
  std::variant<Problems (*)(const RankFacts&, const Cluster&), Problems (*)(const Machine&),
               Problems (*)(const Cluster&)>
      problems;
  const char* remedy;
};

/// A check: the rules of its name, and what it says where none of them finds anything (null: nothing).
struct Check {
  std::string_view name;
  std::string (*ok)(const Cluster& cluster) = nullptr;
  std::string (*drawing)(const Cluster& cluster) = nullptr;  // below its first finding; may be null
  bool ok_beside_warnings = false;
};

/// The checks and rules of one subject.
struct Subject {
  std::span<const Check> checks;
  std::span<const Rule> rules;
};
Subject job_subject();      // launcher, ranks, versions, facts, variables
Subject node_subject();     // host, memory, shm, limits, container, signals
Subject compute_subject();  // cores, threads, locality, gpus, libtorch

/// All checks, in the order in which they are printed.
std::vector<Check> checks();
/// The findings of one check. The same problem of several ranks is one finding.
Findings evaluate(const Check& check, const Cluster& cluster);

/// Findings of single ranks, by rank: the same text of several is one finding, which names them.
Findings of_ranks(const std::vector<std::pair<int, Finding>>& found, size_t world);
/// An error as a finding: what and where, with the error's own hint.
Finding failure_of(const std::exception& error);
std::vector<Machine> machines_of(const Cluster& cluster);
/// "3.5 GiB"; "unlimited" below zero.
std::string bytes_text(long long number);
/// "3 ranks", "1 rank"
std::string counted(size_t number, const char* what);
/// "rank 3", "ranks 0 and 1", "ranks 0-2,5"
std::string ranks_in(const std::vector<int>& ranks);
std::string ranks_in(const Machine& machine);

}  // namespace lockstep::doctor
