#pragma once
// Data read once a node: the node's first rank loads, the others map the same memory and open no data file.

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

/// This process's place in the job, and how the job's ranks exchange texts.
struct NodeShare {
  int local_rank = 0;
  int local_world = 1;
  int node_rank = 0;
  /// Every rank's text on every rank, however long the slowest one loads. Collective. Empty: this process
  /// loads for itself.
  std::function<std::vector<std::string>(const std::string& text)> exchange;
};

/// The memory that a set is loaded into: private, or of a file in memory that other ranks of the node map.
class Arena {
 public:
  Arena();
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  /// A tensor of that shape and type, its values not set.
  at::Tensor empty(at::IntArrayRef shape, at::ScalarType type);

 private:
  friend class NodeLoad;
  struct File;
  std::unique_ptr<File> file_;  // null: private memory
};

/// What loading gives: tensors (from the arena, else they are copied into it), and a text that goes along.
struct SharedSet {
  std::vector<at::Tensor> tensors;
  std::string text;
};

/// Calls `load` on each node's first rank and returns its result on all ranks of that node. An error of any
/// of them is thrown on every rank of the job. Collective. The file has no name, so a killed job leaves
/// nothing.
SharedSet share_on_node(const NodeShare& node, const std::function<SharedSet(Arena&)>& load);

}  // namespace lockstep
