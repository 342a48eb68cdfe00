#pragma once
// What several ranks say, each text once with the ranks that say it.

#include <string>
#include <utility>
#include <vector>

namespace lockstep::launch {

using Grouped = std::vector<std::pair<std::string, std::vector<int>>>;  // a text and its ranks, rising

/// To be called for one rank after another.
void add(Grouped& groups, const std::string& text, int rank);

/// {0, 1, 2, 5} -> "0-2,5"
std::string ranges(const std::vector<int>& numbers);

/// The text, after the ranks that say it where they are not all of them.
std::string with_ranks(const std::string& text, const std::vector<int>& ranks, size_t world);

}  // namespace lockstep::launch
