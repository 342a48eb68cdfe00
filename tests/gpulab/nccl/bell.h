#pragma once
// A bell in shared memory: who waits for a change sleeps until it rings, so that many ranks get along on few
// cores.
#include <atomic>
#include <chrono>
#include <cstdint>

namespace lab::nccl {

class Bell {
 public:
  std::uint32_t heard() const { return rings_.load(); }
  void ring();
  /// Until it rings again after `heard`, or for so long.
  void sleep(std::uint32_t heard, std::chrono::milliseconds longest);

 private:
  std::atomic<std::uint32_t> rings_;
  std::atomic<std::int32_t> sleepers_;  // stays too high when a sleeper is killed: costs a call, no more
};

}  // namespace lab::nccl
