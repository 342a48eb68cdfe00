#pragma once
// A model as a chain of parts: what a pipeline cuts into stages.

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

namespace lockstep {

/// A link of the chain.
struct Part {
  /// The child module whose parameters and buffers it holds, as it is in their names: "fc1", "layers.0".
  std::string name;
  /// What the part before it gave, or the batch, to what the next one takes.
  std::function<at::Tensor(const at::Tensor&)> forward;
};

/// A Net that says so can be trained as a pipeline: struct Mine : lockstep::Net, lockstep::Chain { ... };
class Chain {
 public:
  virtual ~Chain() = default;
  /// In order: one after the other they do what forward() does, to the bit. They live as long as the model.
  virtual std::vector<Part> chain() = 0;
};

}  // namespace lockstep
