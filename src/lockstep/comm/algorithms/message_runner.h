#pragma once
// A backend that runs a collective's messages: an error names the ranks at fault in the collective.

#include <exception>
#include <functional>

#include "lockstep/comm/algorithms/messenger.h"
#include "lockstep/comm/watch/calls.h"
#include "lockstep/comm/watch/peer_monitor.h"

namespace lockstep::comm {

/// The tag for messages of collectives, which every MPI supports.
constexpr int kCollectiveTag = 32767;
/// The tag for the mpi backend's own exchanges, which may run at the same time.
constexpr int kExchangeTag = 32766;

/// Messages between the ranks of a group.
class GroupMessenger : public Messenger {
 public:
  explicit GroupMessenger(const PeerMonitor& monitor) : monitor_(monitor) {}
  int rank() const override { return monitor_.rank(); }
  int world() const override { return static_cast<int>(monitor_.peers().size()); }
  int node_of(int rank) const override { return monitor_.peers()[static_cast<size_t>(rank)].node; }

 private:
  const PeerMonitor& monitor_;
};

/// Receives, from another thread, the error that ends a call.
using OnGivenUp = std::function<void(const std::exception_ptr&)>;

class MessageRunner {
 public:
  virtual ~MessageRunner() = default;
  /// Runs `body` on the caller's thread, one at a time. Returns null, or the error to throw: then the group
  /// is dead. If the group is dead and the messages do not end, calls `on_given_up`; then this call may never
  /// return.
  virtual std::exception_ptr run_messages(const Collective& collective,
                                          const std::function<void(Messenger&)>& body,
                                          const OnGivenUp& on_given_up = {}) = 0;
  /// Collective, but not counted. Throws if another rank is about to make another call than `own`.
  virtual void compare(const Call& own, const Collective& collective) = 0;
};

}  // namespace lockstep::comm
