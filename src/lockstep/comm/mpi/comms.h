#pragma once
// The MPI communicators of a group: all ranks, and the first ranks of all nodes.

#include <mutex>
#include <vector>

#include "lockstep/comm/algorithms/message_runner.h"
#include "lockstep/comm/shm/bounded_wait.h"
#include "lockstep/mpi/calls.h"

namespace lockstep::comm {

/// Made collectively. Never freed, because that would wait for a rank that may be dead.
struct MpiComms {
  static MpiComms make(mpi::Comm world);

  mpi::Comm all = mpi::Comm::null;
  mpi::Comm leaders = mpi::Comm::null;  // on the first rank of each node
  std::vector<std::vector<int>> nodes;  // the ranks of each node, ascending
  int node = 0;                         // this rank's
  int local_rank = 0;

  const std::vector<int>& local_ranks() const { return nodes[static_cast<size_t>(node)]; }
};

/// What a group shares that uses MPI.
struct MpiLink {
  explicit MpiLink(mpi::Comm world) : comms(MpiComms::make(world)) {}

  const MpiComms comms;
  std::mutex mutex;  // one thread at a time calls MPI
};

/// The ranks that name the same part, in rank order, as a communicator. Collective.
mpi::Comm split_ranks(mpi::Comm world, int part);

/// Throws if MPI does not allow calls from the autograd engine's thread.
void require_threads();

/// Throws WaitExpired if `code` is an error of this MPI call.
void require_success(int code, const char* call);

// Messages of one collective over MPI: point to point, with checks that the other ranks are alive.

/// Throws WaitExpired.
class MpiMessenger : public GroupMessenger {
 public:
  MpiMessenger(MpiLink& mpi, int tag, const PeerMonitor& monitor, BoundedWait& wait)
      : GroupMessenger(monitor), mpi_(mpi), tag_(tag), wait_(wait) {}

 protected:
  void transfer(std::span<const Outgoing> out, std::span<const Incoming> in) override;

 private:
  MpiLink& mpi_;
  int tag_;
  BoundedWait& wait_;
};

}  // namespace lockstep::comm
