#pragma once
// The table of rules over all ranks' facts. Rules are pure functions, so a test can make up a cluster.

#include <exception>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lockstep/base/text.h"
#include "tools/doctor/facts.h"

namespace lockstep::doctor {

/// The ranks of one machine, in order.
using Machine = std::vector<const RankFacts*>;

/// What is wrong with a rank, a machine or the cluster, how bad that is, and what to do. A finding with a
/// level or remedy of its own keeps it.
struct Rule {
  FindingLevel level;
  std::variant<Findings (*)(const RankFacts&, const Cluster&), Findings (*)(const Machine&),
               Findings (*)(const Cluster&)>
      problems;
  const char* remedy;
};

/// One row of the table: rules, and what is printed where none of them finds a problem (null: nothing).
struct Check {
  std::string_view name;
  std::vector<Rule> rules;
  std::string (*ok)(const Cluster& cluster) = nullptr;
  std::string (*drawing)(const Cluster& cluster) = nullptr;  // below its first finding; may be null
};

/// The table, in the order in which findings are printed.
std::vector<Check> checks();
/// Its second part: cores, threads, GPUs, libtorch, host name, memory, limits, container, signals.
std::vector<Check> node_checks();
/// The findings of one check. The same problem of several ranks is one finding.
Findings evaluate(const Check& check, const Cluster& cluster);

/// Findings of single ranks, by rank: the same text of several is one finding, which names them.
Findings of_ranks(const std::vector<std::pair<int, Finding>>& found, size_t world);
/// An error as a finding: what and where, with the error's own hint.
Finding failure_of(const std::exception& error);

std::vector<Machine> machines_of(const Cluster& cluster);
using base::counted;
/// "3.5 GiB"; "unlimited" below zero.
std::string bytes_text(long long number);
/// The first `most` of them: "a, b, and 3 more"
std::string some_of(std::vector<std::string> parts, size_t most, const char* between = ", ");
/// "rank 3", "ranks 0 and 1", "ranks 0-2,5"
std::string ranks_in(const std::vector<int>& ranks);

}  // namespace lockstep::doctor
