#pragma once
// The same work for each of many things, by several threads.

#include <cstdint>
#include <functional>

namespace lockstep::data {

/// Calls `work(index)` for 0 to count - 1, in any order, and returns when all are done. `make` gives each
/// thread a `work` of its own. What one throws ends the others soon, and is thrown here.
void parallel_each(int64_t count, int threads, const std::function<std::function<void(int64_t)>()>& make);

/// As many as this process has cores, and no fewer than `least`: those that wait for a disk need none.
int thread_count(int least = 1);

}  // namespace lockstep::data
