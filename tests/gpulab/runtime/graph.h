#pragma once
// A graph is a list of work in the order in which it was captured.

#include <cuda_runtime_api.h>

#include <memory>
#include <vector>

#include "streams.h"

namespace pretended {

struct UserObject;

struct Graph {
  std::vector<Node> nodes;
  std::vector<std::shared_ptr<UserObject>> objects;  // that live as long as the graph
};

/// The handle by which a program names it, until it destroys it.
cudaGraph_t handle_of(const std::shared_ptr<Graph>& graph);
cudaGraph_t add_graph(std::shared_ptr<Graph> graph);
void forget_graph(const std::shared_ptr<Graph>& graph);

}  // namespace pretended
