#pragma once
// The values an unpickler works on, in an arena. A container is frozen once it stands inside another one, so
// there are no cycles, and depth, memory and weight (the memory when shared parts are written out) stay
// bounded.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "lockstep/base/memory.h"
#include "lockstep/checkpoint/file.h"
#include "lockstep/checkpoint/tree.h"

namespace lockstep::checkpoint {

using NodeId = uint32_t;

struct PickleNode {
  enum class Kind { none, boolean, integer, real, text, list, tuple, dict, object, global, storage, tensor };
  Kind kind = Kind::none;
  bool frozen = false;
  int depth = 1;
  int64_t integer = 0;  // also: a storage's dtype
  double real = 0;
  uint64_t weight = 0;
  std::string text = {};              // text, bytes, a global's name, a numpy dtype's code
  std::vector<NodeId> children = {};  // a dictionary's keys and values alternate
  at::Tensor tensor = {};             // a tensor, or a storage's bytes
};

class NodeArena {
 public:
  explicit NodeArena(const Cursor& input);

  NodeId add(PickleNode node);
  NodeId add(PickleNode::Kind kind) { return add(PickleNode{.kind = kind}); }
  NodeId add_text(std::string_view text, PickleNode::Kind kind = PickleNode::Kind::text);
  NodeId add_integer(int64_t value) {
    return add(PickleNode{.kind = PickleNode::Kind::integer, .integer = value});
  }
  NodeId add_real(double value) { return add(PickleNode{.kind = PickleNode::Kind::real, .real = value}); }
  NodeId add_tensor(at::Tensor tensor);
  NodeId add_tuple(const std::vector<NodeId>& children);

  /// Counts memory that the pickle makes its reader hold besides the nodes.
  void hold(uint64_t bytes);

  /// Puts a child into a container that stands alone so far.
  void place(NodeId container, NodeId child);
  /// The same for a list's next values, and for keys and values in turn.
  void extend(NodeId list, const std::vector<NodeId>& values);
  void set_items(NodeId dict, const std::vector<NodeId>& keys_and_values);

  /// The file is damaged where this doesn't hold.
  void want(bool holds) const;
  /// A value that must be of that kind.
  int64_t integer(NodeId id) const;
  std::vector<int64_t> integers(NodeId id) const;
  const std::string& text(NodeId id) const;

  PickleNode& operator[](NodeId id) { return nodes_[id]; }
  const PickleNode& operator[](NodeId id) const { return nodes_[id]; }

  /// The value as a tree; shared parts stay shared.
  Tree to_tree(NodeId id);

 private:
  Tree convert(NodeId id);
  Tree convert_dict(const PickleNode& node);

  [[noreturn]] void too_many() const;

  const Cursor& input_;
  const uint64_t heaviest_;
  base::Allowance allowance_;
  std::deque<PickleNode> nodes_;  // grows without a second copy
  std::vector<Tree> trees_;
  std::vector<bool> converted_;
};

// A tensor from a storage and what a pickle claims about its shape, every claim checked.

struct TensorClaim {
  at::ScalarType dtype;
  int64_t offset = 0;  // in elements
  std::vector<int64_t> sizes = {}, strides = {};
};

inline constexpr size_t kMostDimensions = 64;  ///< of a tensor that is rebuilt

/// A view of the bytes. InputError (through `input`, which knows the file) where it would reach beyond them.
at::Tensor rebuild_tensor(const at::Tensor& bytes, const TensorClaim& claim, const Cursor& input);

}  // namespace lockstep::checkpoint
