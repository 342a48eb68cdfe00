#pragma once
// A tree in two parts: a frame, which is small whatever the tensors hold, and the tensors' bytes.

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/checkpoint/tree.h"

namespace lockstep::checkpoint {

/// A tree, and memory that tensors lie in: bytes in a row, each storage once.
struct WithStorages {
  Tree tree;
  std::vector<at::Tensor> storages;
};

/// The frame has a small tensor in the place of each of the tree's, which are dense; the storages are theirs.
WithStorages take_apart(const Tree& tree);

/// The tree of a frame; its storages, on the CPU, are to be filled, in the order of take_apart().
WithStorages lay_out(const Tree& frame);

}  // namespace lockstep::checkpoint
