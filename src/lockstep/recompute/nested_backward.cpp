#include "lockstep/recompute/nested_backward.h"

#include <torch/csrc/autograd/function.h>

#include <unordered_set>

namespace lockstep::recompute {
namespace {

using torch::autograd::Node;

// Of the node that is computed in this thread; where there is none, a thread without a GPU.
c10::Device device_of_this_thread() {
  const auto node = torch::autograd::get_current_node();
  return node ? node->device() : c10::Device(c10::kCPU);
}

}  // namespace

std::optional<c10::Device> other_gpu_of(const std::vector<torch::autograd::Edge>& roots) {
  const auto here = device_of_this_thread();
  std::unordered_set<Node*> seen;
  std::vector<Node*> open;
  const auto add = [&](const std::vector<torch::autograd::Edge>& edges) {
    for (const auto& edge : edges)
      if (edge.is_valid() && seen.insert(edge.function.get()).second) open.push_back(edge.function.get());
  };
  add(roots);
  while (!open.empty()) {
    auto* node = open.back();
    open.pop_back();
    if (node->device().is_cuda() && node->device() != here) return node->device();
    add(node->next_edges());
  }
  return std::nullopt;
}

}  // namespace lockstep::recompute
