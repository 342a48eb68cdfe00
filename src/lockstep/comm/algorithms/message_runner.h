#pragma once
// A backend that carries messages which are parts of a collective: an error names who is at fault in all of
// it.

#include <exception>
#include <functional>

#include "lockstep/comm/algorithms/messenger.h"
#include "lockstep/comm/watch/calls.h"
#include "lockstep/comm/watch/peer_monitor.h"

namespace lockstep::comm {

/// Messages of collectives have a tag of their own; it is one that every MPI has.
constexpr int kCollectiveTag = 32767;
/// That of other collectives whose messages MPI carries: they may be on their way at the same time.
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

/// Told of an error that ends what waits, from another thread.
using OnGivenUp = std::function<void(const std::exception_ptr&)>;

class MessageRunner {
 public:
  virtual ~MessageRunner() = default;
  /// Runs `body` on the caller's thread. Null, or the error to throw: then the group is dead. One at a time.
  /// `on_given_up` is called where the group is dead and the messages do not end all the same: `body`, and
  /// this, may then never return.
  virtual std::exception_ptr run_messages(const Collective& collective,
                                          const std::function<void(Messenger&)>& body,
                                          const OnGivenUp& on_given_up = {}) = 0;
  /// Collective, and not counted as one: throws where another rank is about to make another call than `own`.
  virtual void compare(const Call& own, const Collective& collective) = 0;
};

}  // namespace lockstep::comm
