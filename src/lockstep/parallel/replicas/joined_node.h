#pragma once
// The node that stands behind a gathered output: in a backward it deals the gradients out to the devices,
// lets each compute (a GPU on the engine's thread for it, a CPU's logical device on its own), and sums what
// they found.

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/function.h>

#include <memory>
#include <vector>

#include "lockstep/parallel/replicas/device_threads.h"
#include "lockstep/parallel/replicas/replicas.h"

namespace lockstep::parallel {

// Where a device's piece of a gathered tensor begins, how long it is, and where its own graph goes on.
struct DevicePiece {
  int64_t begin = 0, length = 0;
  bool is_number = false;
  torch::autograd::Edge edge;
};

// A device's graph, from the pieces of the outputs back to its parameters and inputs.
struct DeviceGraph {
  at::Device device = at::kCPU;
  std::vector<DevicePiece> pieces;
  std::vector<Replicas::Leaf> leaves;
  std::vector<at::Tensor> inputs;
};

class JoinedNode : public torch::autograd::Node {
 public:
  using Gradients = torch::autograd::variable_list;

  JoinedNode(std::vector<DeviceGraph> graphs, size_t sources, std::shared_ptr<DeviceThreads> threads)
      : graphs_(std::move(graphs)), sources_(sources), threads_(std::move(threads)) {}

  Gradients apply(Gradients&& gradients) override;
  void release_variables() override;
  /// While it lives, a backward may come.
  std::weak_ptr<void> pending() const { return pending_; }

 private:
  Gradients reduce(const std::vector<Gradients>& found) const;

  std::vector<DeviceGraph> graphs_;
  size_t sources_;
  std::shared_ptr<DeviceThreads> threads_;
  std::shared_ptr<void> pending_ = std::make_shared<int>();
};

}  // namespace lockstep::parallel
