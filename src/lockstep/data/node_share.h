#pragma once
// Data read once a node: the node's first rank loads, the others map the same memory and open no data file.

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// This process's place on its node.
struct NodeShare {
  int local_rank = 0;
  int local_world = 1;
  std::string name;               // unique to this job on this node
  std::function<void()> barrier;  // of all ranks of the job, lone ones too; empty = memory is private
  std::function<void()> await_load = barrier;  // the same, for as long as a rank loads
};

/// Hands out the tensors that a set is loaded into: in shared memory where there are other ranks, else
/// private.
class Arena {
 public:
  virtual ~Arena() = default;
  /// A tensor of that shape and type, its values not set.
  virtual at::Tensor empty(at::IntArrayRef shape, at::ScalarType type) = 0;
};

/// What loading gives: tensors (from the arena, else they are copied into it), and a text that goes along.
struct SharedSet {
  std::vector<at::Tensor> tensors;
  std::string text;
};

/// Calls `load` on the node's first rank and returns its result on all of them; an error there is the same
/// error on every rank. A lone rank's memory is private, and it meets the others at the same barriers: nodes
/// need not be filled alike. No data ever has a name in the file system.
SharedSet share_on_node(const NodeShare& node, const std::function<SharedSet(Arena&)>& load);

}  // namespace lockstep
