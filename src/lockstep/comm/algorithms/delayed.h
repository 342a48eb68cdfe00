#pragma once
// A simulated slow network, to reproduce a cluster's network on a laptop.

#include <chrono>

#include "lockstep/comm/algorithms/messenger.h"

namespace lockstep {

/// The additional cost of each message.
struct Delay {
  double latency = 0;           ///< seconds
  double bytes_per_second = 0;  ///< of a rank's link, in each direction; 0 = unlimited

  bool operator==(const Delay&) const = default;
  /// How long a link is busy with this many bytes.
  double seconds(double bytes) const { return bytes_per_second > 0 ? bytes / bytes_per_second : 0; }
};

/// Messages over another messenger that take latency + bytes / bandwidth longer. A rank has one outgoing and
/// one incoming link: messages on one link come one after the other, and messages sent together share a
/// latency. A waiting rank sleeps, so that other processes can use the core.
class DelayedMessenger : public Messenger {
 public:
  DelayedMessenger(Messenger& messenger, Delay delay) : messenger_(messenger), delay_(delay) {}
  int rank() const override { return messenger_.rank(); }
  int world() const override { return messenger_.world(); }
  int node_of(int rank) const override { return messenger_.node_of(rank); }

 protected:
  void transfer(std::span<const Outgoing> out, std::span<const Incoming> in) override;

 private:
  Messenger& messenger_;
  Delay delay_;
  std::chrono::steady_clock::time_point line_in_free_{};
};
/// Deprecated.
using Delayed [[deprecated("use DelayedMessenger")]] = DelayedMessenger;

}  // namespace lockstep
