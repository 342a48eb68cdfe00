#pragma once
// Memory for tensors that the ranks of a node sum where it lies: of each rank a piece, mapped by all of them.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/base/files/shared_memory.h"
#include "lockstep/comm/memory/bounded_wait.h"
#include "lockstep/comm/memory/node_window.h"

namespace lockstep::comm {

/// Equal pieces, by local rank. Tensors keep it alive (block_tensors.h).
struct NodeBlock {
  std::vector<base::SharedMemory> pieces;

  std::byte* piece(int local_rank) const {
    return static_cast<std::byte*>(pieces[static_cast<size_t>(local_rank)].data());
  }
  size_t bytes() const { return pieces.front().size(); }
};

/// What is common to the ranks of a node (which blocks there are) changes only in take(), for all alike.
class NodeBlocks {
 public:
  explicit NodeBlocks(NodeWindow& window) : window_(window) {}

  /// Collective over the node: a block of at least so many bytes a rank that no tensor of any rank uses, or
  /// none, on all ranks alike, where they want different sizes or /dev/shm has no room.
  std::shared_ptr<NodeBlock> take(size_t bytes, BoundedWait& patience);
  bool any() const { return !blocks_.empty(); }

  struct Place {
    const NodeBlock* block = nullptr;
    size_t offset = 0;
    uint64_t name = 0;  // of block and offset, the same on all ranks; 0: memory of this rank's own
  };
  /// Where these bytes lie.
  Place find(const std::byte* data, size_t bytes) const;

 private:
  uint64_t free_here() const;
  std::shared_ptr<NodeBlock> make(size_t bytes, BoundedWait& patience);

  NodeWindow& window_;
  std::vector<std::shared_ptr<NodeBlock>> blocks_;  // null: given back
};

}  // namespace lockstep::comm
