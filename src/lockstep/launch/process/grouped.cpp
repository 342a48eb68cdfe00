#include "lockstep/launch/process/grouped.h"

#include <algorithm>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::launch {

void add(Grouped& groups, const std::string& text, int rank) {
  const auto found =
      std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == text; });
  if (found == groups.end()) {
    groups.push_back({text, {rank}});
  } else if (found->second.back() != rank) {
    found->second.push_back(rank);
  }
}

std::string ranges(const std::vector<int>& numbers) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < numbers.size();) {
    size_t end = i + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    parts.push_back(end - i == 1 ? std::to_string(numbers[i])
                                 : format("{}-{}", numbers[i], numbers[end - 1]));
    i = end;
  }
  return base::join(parts, ",");
}

std::string with_ranks(const std::string& text, const std::vector<int>& ranks, size_t world) {
  return ranks.size() == world ? text : format("rank {}: {}", ranges(ranks), text);
}

}  // namespace lockstep::launch
