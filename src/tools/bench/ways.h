#pragma once
// The ways to sum over the ranks that are measured beside each other, and how they are timed and checked.

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/algorithms/algorithm.h"
#include "lockstep/parallel/team.h"

namespace lockstep::bench {

struct Way {
  std::string name;
  std::function<void(at::Tensor&)> sum;  // in place; it is there when this returns
  at::Device device = at::kCPU;
  const Algorithm* algorithm = nullptr;  // whose formula stands beside it
  ProcessGroup shares = {};              // whose ranks share the tensors' memory, as DDP's buckets; or none
};

/// Through a group's all-reduce.
Way through(const std::string& name, const ProcessGroup& group, at::Device device = at::kCPU);

/// The same over tensors that lie in shared memory, where the group has such.
Way in_shared_memory(const std::string& name, const ProcessGroup& group);

/// Seconds for `bytes` of floats, way by way: the median over the rounds of the slowest rank's time. The ways
/// take turns within a round, and line_up(), a barrier, comes before each: how far apart it lets the ranks go
/// is part of what is measured. Error, on all ranks alike, where a sum is wrong. Collective.
std::vector<double> measured(const Team& team, const std::vector<Way>& ways, int64_t bytes, int rounds,
                             const std::function<void()>& line_up);

}  // namespace lockstep::bench
