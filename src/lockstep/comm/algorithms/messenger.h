#pragma once
// Messages between the ranks of a group: all that an all-reduce is made of.

#include <cstddef>
#include <span>

namespace lockstep {

/// Bytes for another rank; they stay where they are until the call that sends them returns.
struct Outgoing {
  int to;                            ///< the rank
  std::span<const std::byte> bytes;  ///< for it
};

/// Where another rank's bytes are to go: as many as it sends.
struct Incoming {
  int from;                    ///< the rank
  std::span<std::byte> bytes;  ///< from it
};

/// One rank's end of the lines to the others. Between two ranks messages keep their order.
class Messenger {
 public:
  virtual ~Messenger() = default;
  /// From 0 to world() - 1.
  virtual int rank() const = 0;
  /// How many ranks there are.
  virtual int world() const = 0;
  /// Which machine a rank is on, by a number; all on one where nobody says.
  virtual int node_of(int /*rank*/) const { return 0; }

  /// All of these at the same time; returns when the last has gone and come. Empty ones do not travel.
  void exchange(std::span<const Outgoing> out, std::span<const Incoming> in);
  /// One each way at the same time: two ranks that call this with each other do not wait for ever.
  void exchange(Outgoing out, Incoming in) { exchange({&out, 1}, {&in, 1}); }
  /// Returns when the bytes may be changed.
  void send(int to, std::span<const std::byte> bytes);
  /// Returns when they are there.
  void receive(int from, std::span<std::byte> bytes);

 protected:
  /// None of them is empty.
  virtual void transfer(std::span<const Outgoing> out, std::span<const Incoming> in) = 0;
};

}  // namespace lockstep
