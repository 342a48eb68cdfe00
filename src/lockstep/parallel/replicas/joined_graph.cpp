#include "lockstep/parallel/replicas/joined_graph.h"

#include <ATen/ATen.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/base/libtorch.h"
#include "lockstep/parallel/replicas/joined_node.h"

namespace lockstep::parallel {
namespace {

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
