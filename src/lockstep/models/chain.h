#pragma once
// A model as a sequence of parts that a pipeline can split into stages.

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace lockstep {

/// One part of the sequence.
struct Part {
  /// The child module with the part's parameters and buffers, as in their names: "fc1", "layers.0".
  std::string name;
  /// Maps the previous part's output, or the batch, to the next part's input.
  std::function<at::Tensor(const at::Tensor&)> forward;
};

/// Derive from it to train a Net as a pipeline: struct Mine : lockstep::Net, lockstep::Chain { ... };
class Chain {
 public:
  virtual ~Chain() = default;
  /// The parts in order; together they equal forward(), bit for bit. Valid as long as the model exists.
  virtual std::vector<Part> chain() = 0;
};

}  // namespace lockstep
