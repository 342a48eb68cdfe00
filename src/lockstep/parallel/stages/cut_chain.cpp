#include "lockstep/parallel/stages/cut_chain.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace lockstep::parallel {

// least[s][n]: the dearest of s stages that take the first n parts, where they are cut best.
std::vector<size_t> cut_chain(const std::vector<int64_t>& costs, size_t stages) {
  const size_t parts = costs.size();
  std::vector<int64_t> before(parts + 1, 0);
  std::partial_sum(costs.begin(), costs.end(), before.begin() + 1);
  constexpr auto kNone = std::numeric_limits<int64_t>::max();
  std::vector<std::vector<int64_t>> least(stages + 1, std::vector<int64_t>(parts + 1, kNone));
  std::vector<std::vector<size_t>> begin(stages + 1, std::vector<size_t>(parts + 1, 0));
  least[0][0] = 0;
  for (size_t s = 1; s <= stages; ++s) {
    for (size_t n = s; n <= parts; ++n) {
      for (size_t last = s - 1; last < n; ++last) {
        const auto dearest = std::max(least[s - 1][last], before[n] - before[last]);
        if (dearest >= least[s][n]) continue;
        least[s][n] = dearest;
        begin[s][n] = last;
      }
    }
  }
  std::vector<size_t> sizes(stages);
  for (size_t s = stages, n = parts; s > 0; n = begin[s][n], --s) sizes[s - 1] = n - begin[s][n];
  return sizes;
}

}  // namespace lockstep::parallel
