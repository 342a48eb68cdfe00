#pragma once
// The MPI communicators of a group: the ranks of this node, the first ranks of all nodes, and all ranks.

#include <vector>

#include "lockstep/mpi/calls.h"

namespace lockstep::comm {

/// Made collectively; freed at MPI_Finalize, because a destructor must not wait for a peer that may be dead.
struct MpiComms {
  static MpiComms make(mpi::Comm world);

  mpi::Comm all = mpi::Comm::null;
  mpi::Comm node = mpi::Comm::null;
  mpi::Comm leaders = mpi::Comm::null;  // on the first rank of each node
  int local_rank = 0;
  int local_world = 1;
  int nodes = 1;
  int node_index = 0;
  std::vector<int> local_ranks;   // the ranks of this node, by local rank
  std::vector<int> node_of_rank;  // for every rank of the group
  std::vector<int> node_order;    // all ranks, node by node
  std::vector<int> node_sizes;
};

/// The ranks that name the same part, in rank order, as a communicator that is freed at MPI_Finalize.
/// Collective.
mpi::Comm split_ranks(mpi::Comm world, int part);

/// Runs `free` in MPI_Finalize, last registered first.
void free_at_finalize(void (*free)(void*), void* what);

/// Throws where MPI would not allow a call from the autograd engine's thread.
void require_threads();

/// Throws OutOfPatience where `code` says that this call of MPI's has failed.
void require_success(int code, const char* call);

}  // namespace lockstep::comm
