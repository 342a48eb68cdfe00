#pragma once
// The MPI communicators of a group: the ranks of this node, the first ranks of all nodes, and all ranks.

#include <mutex>
#include <vector>

#include "lockstep/comm/algorithms/messenger.h"
#include "lockstep/comm/shm/bounded_wait.h"
#include "lockstep/comm/watch/roll_call.h"
#include "lockstep/mpi/calls.h"

namespace lockstep::comm {

/// Made collectively; never freed, because that would wait for a peer that may be dead.
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

/// The ranks that name the same part, in rank order, as a communicator. Collective.
mpi::Comm split_ranks(mpi::Comm world, int part);

/// Throws where MPI would not allow a call from the autograd engine's thread.
void require_threads();

/// Throws WaitExpired where `code` says that this call of MPI's has failed.
void require_success(int code, const char* call);

// Messages of one collective over MPI: point to point, tested in turns that look after the other ranks.

/// Throws WaitExpired.
class MpiMessenger : public Messenger {
 public:
  MpiMessenger(mpi::Comm all, int tag, std::mutex& mpi, const RollCall& roll, BoundedWait& wait)
      : all_(all), tag_(tag), mpi_(mpi), roll_(roll), patience_(wait) {}
  int rank() const override { return roll_.rank(); }
  int world() const override { return static_cast<int>(roll_.peers().size()); }
  int node_of(int rank) const override { return roll_.peers()[static_cast<size_t>(rank)].node; }

 protected:
  void transfer(std::span<const Outgoing> out, std::span<const Incoming> in) override;

 private:
  mpi::Comm all_;
  int tag_;
  std::mutex& mpi_;
  const RollCall& roll_;
  BoundedWait& patience_;
};

}  // namespace lockstep::comm
