#pragma once
// A tree in two parts: a frame, which is small whatever the tensors hold, and the tensors' bytes.

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/base/error.h"
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

// A tree like another one, with other things in the place of its tensors.

/// Error unless its numbers lie in a storage, as files and messages carry them.
inline void require_dense(const at::Tensor& tensor) {
  if (tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_quantized()) return;
  throw Error("only dense tensors can be in a checkpoint", "the tree",
              "make it dense first: to_dense() or dequantize()");
}

/// Calls visit(tensor) for every tensor and returns the tree with what it gave back. Error for values of a
/// kind that no checkpoint holds.
template <class Visit>
Tree map_tensors(const Tree& tree, const Visit& visit) {
  if (tree.isTensor()) return visit(tree.toTensor());
  if (tree.isGenericDict()) {
    auto copy = make_dict();
    for (const auto& [key, value] : items(tree)) put(copy, key, map_tensors(value, visit));
    return copy;
  }
  if (tree.isNone() || tree.isBool() || tree.isInt() || tree.isDouble() || tree.isString()) return tree;
  if (!tree.isList() && !tree.isTuple())
    throw Error("a checkpoint holds no values of the kind " + tree.tagKind(), "the tree",
                "give tensors, numbers, text, None, and dictionaries, lists or tuples of them");
  std::vector<Tree> copies;
  for (const auto& value : elements(tree)) copies.push_back(map_tensors(value, visit));
  if (tree.isTuple()) return c10::ivalue::Tuple::create(std::move(copies));
  return make_list(copies);
}

}  // namespace lockstep::checkpoint
