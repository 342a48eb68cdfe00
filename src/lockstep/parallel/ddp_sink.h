#pragma once
// A node behind the outputs of a forward pass: what Python's DDPSink does.

#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <memory>
#include <vector>

namespace lockstep::parallel {

/// The all-reduces of a static graph's first iteration, to be queued once, from inside its backward pass.
struct DelayedAllReduce {
  std::weak_ptr<c10d::Reducer> reducer;
  bool queued = false;
};

/// Replaces each output that has a history with a copy whose gradient passes through the sink. Outputs that
/// the loss does not use then hand an undefined gradient down, and the Reducer hears of every parameter
/// behind them. `delayed` is null unless the first iteration of a static graph is under way.
void put_sink_behind(const std::vector<at::Tensor*>& outputs, std::shared_ptr<DelayedAllReduce> delayed);

}  // namespace lockstep::parallel
