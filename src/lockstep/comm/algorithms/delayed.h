#pragma once
// A simulated slow network, so that a laptop sees what a cluster sees.

#include <chrono>

#include "lockstep/comm/algorithms/messenger.h"

namespace lockstep {

/// What each message costs beside what it costs anyway.
struct Delay {
  double latency = 0;           ///< seconds
  double bytes_per_second = 0;  ///< of a rank's line, each way; 0 = as fast as they go

  bool operator==(const Delay&) const = default;
  /// How long a line is busy with so many bytes.
  double seconds(double bytes) const { return bytes_per_second > 0 ? bytes / bytes_per_second : 0; }
};

/// Messages over another messenger that take latency + bytes / bandwidth longer. A rank has one line out and
/// one in: messages that share it come one after the other, and those that leave together share a latency.
/// Whoever waits sleeps, and the core is free for others.
class Delayed : public Messenger {
 public:
  Delayed(Messenger& messenger, Delay delay) : messenger_(messenger), delay_(delay) {}
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

}  // namespace lockstep
