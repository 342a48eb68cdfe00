#include "lockstep/parallel/replicas/joined_graph.h"

#include <ATen/ATen.h>
#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <iterator>
#include <memory>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/libtorch.h"
#include "lockstep/parallel/replicas/device_threads.h"
#include "lockstep/parallel/replicas/replicas.h"

namespace lockstep::parallel {
namespace {

// The node that stands behind a gathered output: in a backward it deals the gradients out to the devices,
// lets each compute (a GPU on the engine's thread for it, a CPU's logical device on its own), and sums what
// they found.

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

using torch::autograd::Edge;
using torch::autograd::edge_list;

bool wants_gradient(const at::Tensor& tensor) {
  return tensor.defined() && tensor.requires_grad();
}

void check_outputs_alike(const std::vector<DeviceShare>& shares, const std::vector<at::Device>& devices) {
  const auto& first = shares.front().outputs;
  for (size_t i = 1; i < shares.size(); ++i) {
    const auto& own = shares[i].outputs;
    bool alike = own.size() == first.size();
    for (size_t k = 0; alike && k < own.size(); ++k) alike = own[k].dim() == first[k].dim();
    if (!alike)
      throw InputError("the devices' outputs differ in their number of tensors or of dimensions",
                       name_of_device(i, devices), "let forward return the same for every batch");
  }
}

// One gathered tensor, outside of any graph; its pieces are noted.
at::Tensor join(const std::vector<DeviceShare>& shares, size_t k, std::vector<DeviceGraph>& graphs) {
  const torch::NoGradGuard no_grad;
  const auto first = graphs.front().device;
  std::vector<at::Tensor> parts;
  int64_t begin = 0;
  for (size_t i = 0; i < shares.size(); ++i) {
    const auto& output = shares[i].outputs[k];
    const bool is_number = output.dim() == 0;
    parts.push_back((is_number ? output.reshape({1}) : output).to(first));
    const auto edge = output.requires_grad() ? torch::autograd::impl::gradient_edge(output) : Edge();
    graphs[i].pieces.push_back({begin, parts.back().size(0), is_number, edge});
    begin += parts.back().size(0);
  }
  return at::cat(parts);
}

edge_list edges_behind(const std::vector<at::Tensor>& sources, const std::vector<DeviceShare>& shares) {
  edge_list edges;
  for (const auto& source : sources)
    edges.push_back(source.requires_grad() ? torch::autograd::impl::gradient_edge(source) : Edge());
  for (const auto& share : shares) {
    for (const auto& given : share.given) {
      if (wants_gradient(given)) edges.push_back(torch::autograd::impl::gradient_edge(given));
    }
  }
  return edges;
}

std::vector<DeviceGraph> graphs_of(std::vector<DeviceShare>& shares, const std::vector<at::Device>& devices) {
  std::vector<DeviceGraph> graphs;
  for (size_t i = 0; i < shares.size(); ++i) {
    auto& graph = graphs.emplace_back();
    graph.device = devices[i];
    graph.leaves = std::move(shares[i].leaves);
    for (const auto& input : shares[i].inputs) {
      if (wants_gradient(input)) graph.inputs.push_back(input);
    }
  }
  return graphs;
}

}  // namespace

Gathered gather(std::vector<DeviceShare> shares, const std::vector<at::Tensor>& sources,
                std::shared_ptr<DeviceThreads> threads, const std::vector<at::Device>& devices) {
  check_outputs_alike(shares, devices);
  auto graphs = graphs_of(shares, devices);
  std::vector<at::Tensor> outputs;
  std::vector<bool> differentiable;
  for (size_t k = 0; k < shares.front().outputs.size(); ++k) {
    outputs.push_back(join(shares, k, graphs));
    differentiable.push_back(false);
    for (const auto& share : shares)
      if (wants_gradient(share.outputs[k])) differentiable.back() = true;
  }
  if (std::find(differentiable.begin(), differentiable.end(), true) == differentiable.end())
    return {std::move(outputs), {}};
  auto edges = edges_behind(sources, shares);
  const auto node = base::make_node<JoinedNode>(std::move(graphs), sources.size(), std::move(threads));
  node->set_next_edges(std::move(edges));
  for (size_t k = 0; k < outputs.size(); ++k) {
    if (differentiable[k])
      torch::autograd::create_gradient_edge(outputs[k], node);
    else
      node->add_input_metadata(torch::autograd::Node::undefined_input());
  }
  return {std::move(outputs), node->pending()};
}

}  // namespace lockstep::parallel
