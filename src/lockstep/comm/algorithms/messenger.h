#pragma once
// Messages between the ranks of a group, the building blocks of an all-reduce.

#include <cstddef>
#include <span>

namespace lockstep {

/// A message to another rank. The bytes must stay valid until the call that sends them returns.
struct Outgoing {
  int to;                            ///< the rank
  std::span<const std::byte> bytes;  ///< the data to send
};

/// A buffer for another rank's message. It must have the size that the other rank sends.
struct Incoming {
  int from;                    ///< the rank
  std::span<std::byte> bytes;  ///< the buffer for its data
};

/// One rank's connection to the others. Messages between two ranks keep their order.
class Messenger {
 public:
  virtual ~Messenger() = default;
  /// From 0 to world() - 1.
  virtual int rank() const = 0;
  /// How many ranks there are.
  virtual int world() const = 0;
  /// The index of a rank's node; by default all ranks are on one node.
  virtual int node_of(int /*rank*/) const { return 0; }

  /// Sends and receives all messages at the same time; returns when all are done. Skips empty messages.
  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in);
  /// Sends one and receives one at the same time. Two ranks may call this with each other without a deadlock.
  void exchange(Outgoing out, Incoming in) { exchange({&out, 1}, {&in, 1}); }
  /// Sends a message. Returns when the bytes may be changed.
  void send(int to, std::span<const std::byte> bytes);
  /// Receives a message. Returns when the bytes have arrived.
  void receive(int from, std::span<std::byte> bytes);

 protected:
  /// Sends and receives all messages, none of which is empty; each kind of transport implements it.
  virtual void transfer(std::span<const Outgoing> out, std::span<const Incoming> in) = 0;
};

}  // namespace lockstep
