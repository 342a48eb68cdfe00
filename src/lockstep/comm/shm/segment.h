#pragma once
// The memory that the ranks of a node share: two slots and a few counters for each rank, and the rank's call,
// which the others compare with their own before they read its slot.

#include <c10/core/ScalarType.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/files/shared_memory.h"
#include "lockstep/comm/shm/bounded_wait.h"
#include "lockstep/comm/watch/calls.h"

namespace lockstep::comm {

/// The ranks of one node among those of a group.
struct NodeRanks {
  std::vector<int> ranks;  // of the group, ascending
  int own = 0;             // this rank's place among them
};

/// What a rank is about to do, in a few bytes.
struct CallWord {
  c10d::OpType type = c10d::OpType::UNKNOWN;
  int8_t reduction = -1;  // c10d::ReduceOp::RedOpType, or -1
  c10::ScalarType scalar = c10::ScalarType::Byte;
  int32_t root = -1;
  uint64_t bytes = 0;
  uint64_t parts = 0;  // of several tensors: a hash of their types and sizes

  bool operator==(const CallWord&) const = default;
};

/// Thrown by a collective if another rank has made another call.
struct CallMismatch {
  int rank;  // the other, of the group
  CallWord theirs;
};
/// The same words on both ranks.
Difference difference_to(const CallMismatch& mismatch, int rank, const CallWord& own);

namespace shm {

/// Equal pieces of memory, one from each rank of the node, mapped by all of them.
struct Block {
  std::vector<base::SharedMemory> pieces;  // by local rank; empty if there are none
  std::string why;                         // why there are none, the same on all ranks

  std::byte* piece(int local_rank) const {
    return static_cast<std::byte*>(pieces[static_cast<size_t>(local_rank)].data());
  }
  size_t bytes() const { return pieces.front().size(); }
};

/// Gives every rank each rank's text, by local rank.
using ExchangeTexts = std::function<std::vector<std::string>(const std::string& own)>;

/// Collective over these ranks: zeroed pieces of so many bytes. All ranks get none if /dev/shm is full or if
/// the ranks are in containers that do not share it. Leaves no file behind.
Block map_block(size_t bytes, const NodeRanks& node, const ExchangeTexts& exchange);

/// A collective takes turns: begin(), write to the own slot, post(), wait for the posts of other ranks, read
/// their slots. Turns alternate between two slots, so a rank may begin the next turn while others still read
/// this one. Every rank posts the same number of times in a turn.
class Segment {
 public:
  /// The size of the pieces of its block.
  static size_t bytes_for(size_t slot_bytes);
  Segment(Block block, NodeRanks node, size_t slot_bytes);

  /// There are more ranks than cores: a rank that waits for all sleeps until the last one has posted, and
  /// does not wake up for each of them. Call it on all ranks after the same turns.
  void expect_crowd() { crowd_ = true; }

  size_t slot_bytes() const { return slot_bytes_; }
  int rank() const { return node_.own; }
  int size() const { return static_cast<int>(node_.ranks.size()); }

  /// Tells the other ranks that this rank has begun its next collective.
  void arrive();
  /// Whether all ranks arrive within some milliseconds.
  bool all_arrived();

  /// The call of the next turns. A rank that waits for a rank with another call throws CallMismatch.
  void name_call(const CallWord& call) { call_ = call; }
  const CallWord& call() const { return call_; }
  /// Waits until no rank reads the slot that this turn writes.
  void begin(BoundedWait& wait);
  std::byte* slot(int local_rank) const;
  std::byte* own_slot() const { return slot(rank()); }
  /// Publishes this rank's slot. This rank no longer reads slots of the turn before.
  void post();
  /// Waits until that rank has posted as often as this one.
  void wait(int local_rank, BoundedWait& wait);
  void wait_all(BoundedWait& wait);
  /// A turn in which every rank sends a few bytes to all. Returns them by local rank.
  template <class Row>
  std::vector<Row> exchange(const Row& own, BoundedWait& wait);

 private:
  struct Head;
  Head& head(int local_rank) const;
  std::chrono::nanoseconds longest_spin();
  void wait_for(int local_rank, uint64_t posts, BoundedWait& wait);

  Block block_;
  NodeRanks node_;
  size_t slot_bytes_;
  CallWord call_;
  bool crowd_ = false;
  uint64_t crowd_posts_ = 0, crowd_arrivals_ = 0;  // of this rank since expect_crowd()
  uint64_t arrivals_ = 0;
  std::chrono::microseconds longest_arrival_;
  SpinLength spin_;
  uint64_t posts_ = 0;
  uint64_t looked_at_ = 0;  // the number of posts when it looked at the ranks' cores
  bool shares_core_ = false;
  uint64_t turns_ = 0;
  uint64_t turn_before_ = 0;  // the number of the first post of the turn before
};

template <class Row>
std::vector<Row> Segment::exchange(const Row& own, BoundedWait& wait) {
  begin(wait);
  std::memcpy(own_slot(), &own, sizeof(Row));
  post();
  wait_all(wait);
  std::vector<Row> rows(static_cast<size_t>(size()));
  for (int rank = 0; rank < size(); ++rank)
    std::memcpy(&rows[static_cast<size_t>(rank)], slot(rank), sizeof(Row));
  return rows;
}

/// Blocks for tensors, so that an all-reduce can sum them in place.
class TensorBlocks {
 public:
  explicit TensorBlocks(Segment& segment) : segment_(segment) {}

  /// Collective over the node: a block of so many bytes per rank, which its tensors keep alive. Null on all
  /// ranks if the sizes differ or /dev/shm has no room.
  std::shared_ptr<Block> take(const NodeRanks& node, size_t bytes, BoundedWait& wait);
  /// Whether there was a block, the same on all ranks.
  bool any() const { return made_ > 0; }

  struct Place {
    std::shared_ptr<const Block> block = nullptr;
    size_t offset = 0;
    uint64_t name = 0;  // of block and offset, the same on all ranks; 0: not in a block
  };
  /// The block that contains these bytes.
  Place find(const std::byte* data, size_t bytes) const;

 private:
  Segment& segment_;
  uint64_t made_ = 0;
  std::vector<std::pair<uint64_t, std::weak_ptr<Block>>> blocks_;  // numbered from 1
};

}  // namespace shm

// Copies for memory that another core wrote or read last.

/// The next piece is fetched while this one is copied. For larger pieces glibc uses an instruction that takes
/// 25% longer on AMD.
constexpr size_t kPiece = 2048;

/// Fetches cache lines for writing. A store to a line in another core's cache waits for the line, and a store
/// after a load waits twice. Between distant cores that takes several times as long as this.
inline void fetch_to_write([[maybe_unused]] const std::byte* at, [[maybe_unused]] size_t bytes) {
#if defined(__x86_64__)
  constexpr size_t kLine = 64;
  for (size_t i = 0; i < bytes; i += kLine) asm volatile("prefetchw %0" : : "m"(at[i]));
#endif
}

/// As memcpy.
void copy_in_pieces(const std::byte* from, std::byte* to, size_t bytes);
/// The same if another core has the lines of `slot`.
void copy_into_slot(std::byte* slot, const std::byte* from, size_t bytes);

}  // namespace lockstep::comm
