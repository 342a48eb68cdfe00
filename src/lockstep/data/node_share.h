#pragma once
// Data that is read once per node: the first rank loads it, the others map the same memory.

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace lockstep {

namespace base {
class FileMap;
}

/// This process's place in the job, and how the job's ranks exchange strings.
struct NodeShare {
  int local_rank = 0;
  int local_world = 1;
  int node_rank = 0;
  /// Returns every rank's string on every rank, without a time limit. Collective. Empty: each process loads.
  std::function<std::vector<std::string>(const std::string& text)> exchange;
};

/// The memory that a set is loaded into: private, or an in-memory file that the other ranks of the node map.
class Arena {
 public:
  Arena();
  ~Arena();
  Arena(Arena&&) = delete;
  /// An uninitialized tensor of that shape and type.
  at::Tensor empty(at::IntArrayRef shape, at::ScalarType type);
  /// The other ranks map the file, too, for tensors in it, instead of copies. It is mapped from its first
  /// byte.
  void add_file(const std::shared_ptr<base::FileMap>& map, int file);

 private:
  friend class NodeLoad;
  struct File;
  std::unique_ptr<File> file_;  // null: private memory
};

/// A loaded set: tensors, which are copied into the arena if they are not in it or in one of its files, and
/// any other data.
struct SharedSet {
  std::vector<at::Tensor> tensors;
  std::string text;
};

/// Calls `load` on each node's first rank and returns its result on all ranks of that node. If one fails,
/// every rank of the job throws its error. Collective. A killed job leaves no file behind.
SharedSet share_on_node(const NodeShare& node, const std::function<SharedSet(Arena&)>& load);

}  // namespace lockstep
