#pragma once
// Neighbours in a graph that kernels of our own compute in one, to libtorch's bits.

#include "lockstep/exported/graph.h"

namespace lockstep::exported {

/// max_pool2d(relu(x), 2), relu(linear(x)) and linear(x) become one node each, where one follows the other
/// and nobody else reads what lies between them.
void fuse(Graph& graph);

}  // namespace lockstep::exported
