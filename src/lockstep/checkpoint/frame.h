#pragma once
// A tree in two parts: a pickle, which is small whatever the tensors hold, and the tensors' storages.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/checkpoint/tree.h"

namespace lockstep::checkpoint {

/// The pickle of a tree with dense tensors. Adds the bytes of each storage, once, to `storages`.
std::string pickle_tree(const Tree& tree, std::vector<at::Tensor>& storages);

/// A tree, and the bytes of the storages that its tensors are views of.
struct StoredTree {
  Tree tree;
  std::vector<at::Tensor> storages;
};

/// The tree of pickle_tree(). The storages, on the CPU and in the same order, are to be filled. `name` is
/// what errors call the pickle.
StoredTree unpickle_tree(std::span<const uint8_t> pickle, const std::string& name);

/// Error unless the tensor's numbers are in a storage, which files and messages need.
inline void require_dense(const at::Tensor& tensor) {
  if (tensor.defined() && tensor.layout() == at::kStrided && !tensor.is_quantized()) return;
  throw Error("only dense tensors can be in a checkpoint", "the tree",
              "make it dense first: to_dense() or dequantize()");
}

/// Calls visit(tensor) for every tensor and returns the tree with the results in their place. Error for
/// values of a kind that no checkpoint holds.
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
    throw Error("a checkpoint cannot hold a value of the kind " + tree.tagKind(), "the tree",
                "give tensors, numbers, text, None, and dictionaries, lists or tuples of them");
  std::vector<Tree> copies;
  for (const auto& value : elements(tree)) copies.push_back(map_tensors(value, visit));
  if (tree.isTuple()) return c10::ivalue::Tuple::create(std::move(copies));
  return make_list(copies);
}

}  // namespace lockstep::checkpoint
