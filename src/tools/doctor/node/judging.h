#pragma once
// What checks share: findings that several ranks give are told once, nodes are looked at once, sizes are
// readable.

#include <exception>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tools/doctor/node/facts.h"
#include "tools/doctor/node/finding.h"

namespace lockstep::doctor {

/// What a person is told where a look ended with an error.
Finding failure_of(const std::exception& error);

/// Each distinct finding once, with the ranks that gave it; `otherwise` where none did.
Findings of_ranks(const Picture& picture, const std::function<std::optional<Finding>(const RankFacts&)>& look,
                  const std::function<Finding()>& otherwise);

/// The ranks of each machine, in the order of their first.
using Machine = std::vector<const RankFacts*>;
std::vector<Machine> machines_of(const Picture& picture);

/// Each machine's findings, which name its host where there are several; `otherwise` where there are none.
Findings of_machines(const Picture& picture, const std::function<Findings(const Machine&)>& look,
                     const std::function<Finding()>& otherwise);

/// "3.5 GiB"; "unlimited" below zero.
std::string bytes(long long number);
/// "rank 3", "ranks 0 and 1", "ranks 0-2,5"
std::string ranks_in(const std::vector<int>& ranks);
std::string ranks_in(const Machine& machine);
/// Whether any hardware thread is in both lists ("0-3,8"); an empty one has none.
bool overlap(const std::string& a, const std::string& b);
/// How many hardware threads are in any of them.
int threads_in(const std::vector<std::string>& masks);

}  // namespace lockstep::doctor
