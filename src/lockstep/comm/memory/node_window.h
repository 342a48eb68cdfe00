#pragma once
// The shared memory of a node's ranks inside a collective: two slots and two counters a rank.

#include <c10/core/ScalarType.h>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "lockstep/base/files/shared_memory.h"
#include "lockstep/comm/memory/bounded_wait.h"
#include "lockstep/comm/watch/calls.h"

namespace lockstep::comm {

// Memory that the ranks of a node share: a piece from each, which all of them map.

/// The ranks of one node among those of a group.
struct NodeRanks {
  std::vector<int> ranks;  // of the group, ascending
  int own = 0;             // this rank's place among them
};

struct NodeMemory {
  std::vector<base::SharedMemory> pieces;  // by place; empty where there is none
  std::string why;                         // there is none, the same words on all ranks
};

/// Collective over these ranks, all of which reach the store: so many bytes of each, zero but for a mark at
/// their end (kMarkBytes), or nothing, on all ranks alike: /dev/shm may be full, or ranks that believe to be
/// on one node may be in containers that do not share it. No name is left behind.
NodeMemory share_memory(c10d::Store& store, const std::string& stage, const NodeRanks& node, size_t bytes);

constexpr size_t kMarkBytes = 32;

/// Collective over these ranks: what each tells the others at this stage, by place.
std::vector<std::string> exchange(c10d::Store& store, const std::string& stage, const NodeRanks& node,
                                  const std::string& own);

// What a rank is about to do, in three words: ranks compare them before they touch each other's
// numbers.

struct CallWord {
  uint64_t what = 0;  // operation, reduction, type and root
  uint64_t bytes = 0;
  uint64_t parts = 0;  // of several tensors: a digest of their types and sizes

  bool operator==(const CallWord&) const = default;
};

/// `reduction` and `root` are -1 where the operation has none.
CallWord word_of(c10d::OpType type, int reduction, int root, c10::ScalarType scalar, size_t bytes);
/// "all-reduce (sum) of 40 bytes of Float"
std::string in_words(const CallWord& word);

/// Thrown out of a collective in which another rank does something else.
struct UnlikeCalls {
  int rank;  // the other, of the group
  CallWord theirs;
};
/// Both in the same words, whichever of the two finds it.
Difference difference_to(const UnlikeCalls& unlike, int rank, const CallWord& own);

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
  void begin(BoundedWait& patience);
  std::byte* slot(int local_rank) const;
  std::byte* own_slot() const { return slot(rank()); }
  /// What this rank wrote is there, and it reads nothing of the turn before any more.
  void post();
  /// Until that rank has posted as often as this one.
  void wait(int local_rank, BoundedWait& patience);
  void wait_all(BoundedWait& patience);
  /// A turn in which every rank shows a few bytes: all of them, by local rank.
  template <class Row>
  std::vector<Row> exchange(const Row& own, BoundedWait& patience);

 private:
  void wait_for(int local_rank, uint64_t posts, BoundedWait& patience);
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
std::vector<Row> NodeWindow::exchange(const Row& own, BoundedWait& patience) {
  begin(patience);
  std::memcpy(own_slot(), &own, sizeof(Row));
  post();
  wait_all(patience);
  std::vector<Row> rows(static_cast<size_t>(size()));
  for (int rank = 0; rank < size(); ++rank)
    std::memcpy(&rows[static_cast<size_t>(rank)], slot(rank), sizeof(Row));
  return rows;
}

// Copies into memory that another core wrote or read last.

/// What is fetched while as much before it is worked on. glibc copies more at once by an instruction that
/// takes a quarter longer on AMD.
constexpr size_t kPiece = 2048;

/// Asks for cache lines that will be written. A store into a line that another core has waits for it, and a
/// store after a load waits twice: between cores far apart that takes several times as long as this.
inline void fetch_to_write([[maybe_unused]] const std::byte* at, [[maybe_unused]] size_t bytes) {
#if defined(__x86_64__)
  constexpr size_t kLine = 64;
  for (size_t i = 0; i < bytes; i += kLine) asm volatile("prefetchw %0" : : "m"(at[i]));
#endif
}

/// As memcpy.
void copy_in_pieces(const std::byte* from, std::byte* to, size_t bytes);
/// The same, where another core has the lines of `slot`.
void copy_into_slot(std::byte* slot, const std::byte* from, size_t bytes);

}  // namespace lockstep::comm
