#include "lockstep/parallel/joined_graph.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::parallel {
namespace {

using torch::autograd::Edge;
using torch::autograd::edge_list;
using torch::autograd::variable_list;

// Where a device's piece of a gathered tensor begins, how long it is, and where its own graph goes on.
struct Piece {
  int64_t begin = 0, length = 0;
  bool is_number = false;
  Edge edge;
};

// A device's graph, from the pieces of the outputs back to its parameters and inputs.
struct DeviceGraph {
  at::Device device = at::kCPU;
  std::vector<Piece> pieces;
  std::vector<Replicas::Leaf> leaves;
  std::vector<at::Tensor> inputs;
};

class JoinedGraph : public torch::autograd::Node {
 public:
  JoinedGraph(std::vector<DeviceGraph> graphs, size_t sources, std::shared_ptr<DeviceThreads> threads)
      : graphs_(std::move(graphs)), sources_(sources), threads_(std::move(threads)) {}

  variable_list apply(variable_list&& gradients) override {
    if (graphs_.empty())
      throw Error("backward ran through this graph already", "data_parallel",
                  "keep it with retain_graph, or run the forward again");
    if (at::GradMode::is_enabled())
      throw InputError("a gradient of a gradient does not go through data_parallel", "data_parallel",
                       "take it of the bare module");
    const bool keep = torch::autograd::get_current_graph_task_keep_graph();
    std::vector<variable_list> found(graphs_.size());
    threads_->run(graphs_.size(), [&](size_t i) { found[i] = backward(i, graphs_[i], gradients, keep); });
    return reduce(found);
  }

  void release_variables() override {
    graphs_.clear();
    pending_.reset();
  }
  std::weak_ptr<void> pending() const { return pending_; }

 private:
  static variable_list backward(size_t index, const DeviceGraph& graph, const variable_list& gradients,
                                bool keep) {
    edge_list roots, wanted;
    variable_list own;
    for (size_t k = 0; k < graph.pieces.size(); ++k) {
      const auto& piece = graph.pieces[k];
      if (!piece.edge.is_valid() || !gradients[k].defined()) continue;
      auto gradient = sent(gradients[k].narrow(0, piece.begin, piece.length), index, graph.device);
      roots.push_back(piece.edge);
      own.push_back(piece.is_number ? gradient.reshape({}) : gradient);
    }
    for (const auto& leaf : graph.leaves) wanted.push_back(torch::autograd::impl::gradient_edge(leaf.tensor));
    for (const auto& input : graph.inputs) wanted.push_back(torch::autograd::impl::gradient_edge(input));
    if (roots.empty() || wanted.empty()) return variable_list(wanted.size());
    return torch::autograd::Engine::get_default_engine().execute(roots, own, keep, /*create_graph=*/false,
                                                                 /*accumulate_grad=*/false, wanted);
  }

  // In the order of the devices, so that the bits do not depend on who was done first.
  variable_list reduce(const std::vector<variable_list>& found) const {
    variable_list result(sources_);
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

  std::vector<DeviceGraph> graphs_;
  size_t sources_;
  std::shared_ptr<DeviceThreads> threads_;
  std::shared_ptr<void> pending_ = std::make_shared<int>();
};

bool wants_gradient(const at::Tensor& tensor) {
  return tensor.defined() && tensor.requires_grad();
}

void check_alike(const std::vector<DeviceShare>& shares, const std::vector<at::Device>& devices) {
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
  check_alike(shares, devices);
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
  const auto node = std::make_shared<JoinedGraph>(std::move(graphs), sources.size(), std::move(threads));
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
