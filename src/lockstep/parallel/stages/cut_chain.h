#pragma once
// Where a chain of parts is cut into stages.

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::parallel {

/// How many parts each stage takes, in order: the cut whose dearest stage costs least, each stage with a part
/// at least. At most as many stages as costs.
std::vector<size_t> cut_chain(const std::vector<int64_t>& costs, size_t stages);

}  // namespace lockstep::parallel
