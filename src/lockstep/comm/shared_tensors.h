#pragma once
// Tensors where all ranks of a node see them, so that an all-reduce sums them in one pass and copies nothing.

#include <ATen/core/Tensor.h>

#include <vector>

#include "lockstep/comm/group.h"

namespace lockstep::comm {

/// Moves what the tensors' storages hold, and with them all views, where the group's backend sums without
/// copies: shared and mpi, on a node with several ranks and room in /dev/shm. Elsewhere nothing changes but
/// the time that a sum takes. Collective, with tensors alike on all ranks. An all-reduce takes the quick way
/// when all ranks give the same part of such a tensor, to the same bits as any other.
void share(const ProcessGroup& group, const std::vector<at::Tensor>& tensors);

}  // namespace lockstep::comm
