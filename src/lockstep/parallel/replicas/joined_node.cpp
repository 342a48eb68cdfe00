#include "lockstep/parallel/replicas/joined_node.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <iterator>

#include "lockstep/base/error.h"

namespace lockstep::parallel {
namespace {

using torch::autograd::edge_list;
using torch::autograd::variable_list;

// What a backward through one device's graph, or several, begins with and is to find.
struct Request {
  edge_list roots, wanted;
  variable_list gradients;
};

void add(Request& request, size_t index, const DeviceGraph& graph, const variable_list& gradients) {
  for (size_t k = 0; k < graph.pieces.size(); ++k) {
    const auto& piece = graph.pieces[k];
    if (!piece.edge.is_valid() || !gradients[k].defined()) continue;
    auto gradient = sent(gradients[k].narrow(0, piece.begin, piece.length), index, graph.device);
    request.roots.push_back(piece.edge);
    request.gradients.push_back(piece.is_number ? gradient.reshape({}) : gradient);
  }
  for (const auto& leaf : graph.leaves)
    request.wanted.push_back(torch::autograd::impl::gradient_edge(leaf.tensor));
  for (const auto& input : graph.inputs)
    request.wanted.push_back(torch::autograd::impl::gradient_edge(input));
}

variable_list backward(const Request& request, bool keep) {
  if (request.roots.empty() || request.wanted.empty()) return variable_list(request.wanted.size());
  return torch::autograd::Engine::get_default_engine().execute(request.roots, request.gradients, keep,
                                                               /*create_graph=*/false,
                                                               /*accumulate_grad=*/false, request.wanted);
}

// One backward through all graphs. The engine has one thread for each GPU, and this is the first one's: a
// backward on another thread that comes to this GPU would wait for this one for ever.
std::vector<variable_list> backward_together(const std::vector<DeviceGraph>& graphs,
                                             const variable_list& gradients, bool keep) {
  Request all;
  std::vector<size_t> ends;
  for (size_t i = 0; i < graphs.size(); ++i) {
    add(all, i, graphs[i], gradients);
    ends.push_back(all.wanted.size());
  }
  auto found = backward(all, keep);
  std::vector<variable_list> parts;
  size_t begin = 0;
  for (const size_t end : ends) {
    const auto at = [&found](size_t place) {
      return std::make_move_iterator(found.begin() + static_cast<std::ptrdiff_t>(place));
    };
    parts.emplace_back(at(begin), at(end));
    begin = end;
  }
  return parts;
}

}  // namespace

JoinedNode::Gradients JoinedNode::apply(Gradients&& gradients) {
  if (graphs_.empty())
    throw Error("backward ran through this graph already", "data_parallel",
                "keep it with retain_graph, or run the forward again");
  if (at::GradMode::is_enabled())
    throw InputError("a gradient of a gradient does not go through data_parallel", "data_parallel",
                     "take it of the bare module");
  const bool keep = torch::autograd::get_current_graph_task_keep_graph();
  if (!graphs_.front().device.is_cpu()) return reduce(backward_together(graphs_, gradients, keep));
  std::vector<Gradients> found(graphs_.size());
  threads_->run(graphs_.size(), [&](size_t i) {
    Request own;
    add(own, i, graphs_[i], gradients);
    found[i] = backward(own, keep);
  });
  return reduce(found);
}

// In the order of the devices, so that the bits do not depend on who was done first.
JoinedNode::Gradients JoinedNode::reduce(const std::vector<Gradients>& found) const {
  Gradients result(sources_);
  const auto first = graphs_.front().device;
  for (size_t i = 0; i < graphs_.size(); ++i) {
    const auto& leaves = graphs_[i].leaves;
    for (size_t k = 0; k < leaves.size(); ++k) {
      if (!found[i][k].defined()) continue;
      auto& sum = result[leaves[k].source];
      const auto own = found[i][k].to(first);
      sum = sum.defined() ? sum + own : own;
    }
  }
  for (size_t i = 0; i < graphs_.size(); ++i) {
    const auto begin = found[i].begin() + static_cast<std::ptrdiff_t>(graphs_[i].leaves.size());
    result.insert(result.end(), begin, found[i].end());
  }
  return result;
}

void JoinedNode::release_variables() {
  graphs_.clear();
  pending_.reset();
}

}  // namespace lockstep::parallel
