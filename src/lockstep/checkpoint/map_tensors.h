#pragma once
// A tree like another one, with other things in the place of its tensors.

#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/tree.h"

namespace lockstep::checkpoint {

/// Error unless its numbers lie in a storage, as files and messages carry them.
inline void require_dense(const at::Tensor& tensor) {
  if (tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_quantized()) return;
  throw Error("only dense tensors can be in a checkpoint", "the tree",
              "make it dense first: to_dense() or dequantize()");
}

/// Calls visit(tensor) for every tensor and returns the tree with what it gave back.
template <class Visit>
Tree map_tensors(const Tree& tree, const Visit& visit) {
  if (tree.isTensor()) return visit(tree.toTensor());
  if (tree.isGenericDict()) {
    auto copy = make_dict();
    for (const auto& [key, value] : items(tree)) put(copy, key, map_tensors(value, visit));
    return copy;
  }
  if (!tree.isList() && !tree.isTuple()) return tree;
  std::vector<Tree> copies;
  for (const auto& value : elements(tree)) copies.push_back(map_tensors(value, visit));
  if (tree.isTuple()) return c10::ivalue::Tuple::create(std::move(copies));
  return make_list(copies);
}

}  // namespace lockstep::checkpoint
