#pragma once
// One page that the ranks of a node share: how many collectives each has begun. Written at each collective
// with one store, read only when something went wrong.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "lockstep/base/files/shared_memory.h"

namespace lockstep::comm {

class RollPage {
 public:
  static size_t bytes_for(int world);
  RollPage(base::SharedMemory memory, int world);

  /// Says that `rank` is on this page.
  void enter(int rank);
  bool present(int rank) const;
  /// The number of the collective that begins now, from 1; `what` says what kind it is.
  uint64_t begin(int rank, uint32_t what = 0);
  /// Takes back a begin() whose collective was refused for its arguments.
  void take_back(int rank);
  uint64_t begun(int rank) const;
  /// Of the one begun last.
  uint32_t what(int rank) const;
  /// An orderly goodbye.
  void leave(int rank);
  bool left(int rank) const;

  /// The first finding of the node stands: later deaths are its consequences. Returns the one that stands.
  std::string agree_on(const std::string& finding);
  std::string agreed() const;

  void unlink() { memory_.unlink(); }
  const std::string& name() const { return memory_.name(); }

 private:
  struct Slot;
  struct Head;
  Head& head() const;
  Slot& slot(int rank) const;

  base::SharedMemory memory_;
};

}  // namespace lockstep::comm
