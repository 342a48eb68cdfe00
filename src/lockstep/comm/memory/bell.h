#pragma once
// A counter in memory that processes share, for which others can sleep.

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lockstep::comm {

/// One process rings, or several together. Whoever waits may look (a load) or sleep; the ringer makes a
/// system call only when somebody sleeps.
class Bell {
 public:
  uint64_t rung() const { return rung_.load(std::memory_order_acquire); }
  /// What was written before is seen by all who have heard it.
  void ring(uint64_t count) {
    // the store and the load must not change places: else one who is about to sleep would be overlooked
    rung_.store(count, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) wake();
  }
  /// In place of ring(), of a bell that `ringers` processes ring as often as each other: the one that makes
  /// their count even wakes who sleeps for that.
  void ring_with(uint64_t ringers) {
    const uint64_t count = rung_.fetch_add(1, std::memory_order_seq_cst) + 1;
    if (count % ringers == 0 && sleepers_.load(std::memory_order_seq_cst) != 0) wake();
  }
  /// Returns when `count` has been rung, after `longest`, or for no reason.
  void sleep_until_rung(uint64_t count, std::chrono::milliseconds longest);

 private:
  uint32_t* word();
  void wake();

  std::atomic<uint64_t> rung_{0};
  std::atomic<uint32_t> sleepers_{0};
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

}  // namespace lockstep::comm
