#pragma once
// Tensors whose memory moves into a block that the node's ranks share.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <memory>
#include <vector>

#include "lockstep/comm/memory/node_blocks.h"

namespace lockstep::comm {

/// What the tensors' storages need side by side: the same on two ranks whose tensors are alike.
size_t block_bytes(const std::vector<at::Tensor>& tensors);

/// What the storages hold moves along, and so do all views of them. They keep the block alive.
void move_into(const std::shared_ptr<NodeBlock>& block, int local_rank,
               const std::vector<at::Tensor>& tensors);

}  // namespace lockstep::comm
