#pragma once
// The shared memory of a node's ranks inside a collective: two slots and two counters a rank.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "lockstep/comm/memory/call_word.h"
#include "lockstep/comm/memory/node_memory.h"
#include "lockstep/comm/memory/patience.h"
#include "lockstep/comm/memory/spin.h"

namespace lockstep::comm {

/// A collective is a turn: begin(), write to one's slot, post(), wait for others' posts, read their slots.
/// Turns alternate between two slots, so that a rank may begin the next turn while others still read this
/// one. Every rank posts the same number of times in a turn.
class NodeWindow {
 public:
  /// What a rank's piece of memory needs.
  static size_t bytes_for(size_t slot_bytes);
  NodeWindow(NodeMemory memory, NodeRanks node, size_t slot_bytes);

  /// Ranks outnumber the cores: who waits for all sleeps until the last has come, not for one after another.
  /// On all ranks, after the same turns.
  void expect_crowd() { crowd_ = true; }

  size_t slot_bytes() const { return slot_bytes_; }
  int rank() const { return node_.own; }
  int size() const { return static_cast<int>(segments_.size()); }

  /// Says that this rank has come to its next collective.
  void arrive();
  /// Whether all do so within some milliseconds.
  bool all_arrived();

  /// What the turns from now on are part of. A rank that waits in a turn for one that is in another call
  /// throws UnlikeCalls.
  void name_call(const CallWord& call) { call_ = call; }
  /// Waits until nobody reads the slot that this turn writes.
  void begin(Patience& patience);
  std::byte* slot(int local_rank) const;
  std::byte* own_slot() const { return slot(rank()); }
  /// What this rank wrote is there, and it reads nothing of the turn before any more.
  void post();
  /// Until that rank has posted as often as this one.
  void wait(int local_rank, Patience& patience);
  void wait_all(Patience& patience);
  /// A turn in which every rank shows a few bytes: all of them, by local rank.
  template <class Row>
  std::vector<Row> exchange(const Row& own, Patience& patience);

 private:
  void wait_for(int local_rank, uint64_t posts, Patience& patience);
  void sleep_for_crowd();

  NodeMemory memory_;
  NodeRanks node_;
  size_t slot_bytes_;
  std::vector<std::byte*> segments_;
  CallWord call_;
  bool crowd_ = false;
  uint64_t crowd_posts_ = 0, crowd_arrivals_ = 0;  // of this rank, as the common bells count them
  uint64_t arrivals_ = 0;
  std::chrono::microseconds arrival_patience_;
  SpinLength spin_;
  uint64_t posts_ = 0;
  uint64_t turns_ = 0;
  uint64_t turn_before_ = 0;  // the number of the first post of the turn before
};

template <class Row>
std::vector<Row> NodeWindow::exchange(const Row& own, Patience& patience) {
  begin(patience);
  std::memcpy(own_slot(), &own, sizeof(Row));
  post();
  wait_all(patience);
  std::vector<Row> rows(static_cast<size_t>(size()));
  for (int rank = 0; rank < size(); ++rank)
    std::memcpy(&rows[static_cast<size_t>(rank)], slot(rank), sizeof(Row));
  return rows;
}

}  // namespace lockstep::comm
