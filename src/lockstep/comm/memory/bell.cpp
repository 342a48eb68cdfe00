#include "lockstep/comm/memory/bell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bit>
#include <climits>
#include <ctime>

namespace lockstep::comm {

// The kernel compares 32 bits: the lower half of the counter, which changes with each ring.
uint32_t* Bell::word() {
  return reinterpret_cast<uint32_t*>(&rung_) + (std::endian::native == std::endian::big ? 1 : 0);
}

// Not FUTEX_PRIVATE_FLAG: the sleeper is another process.
void Bell::sleep_until_rung(uint64_t count, std::chrono::milliseconds longest) {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  const uint64_t seen = rung_.load(std::memory_order_seq_cst);
  if (seen < count) {
    const timespec limit{.tv_sec = longest.count() / 1000, .tv_nsec = longest.count() % 1000 * 1'000'000};
    ::syscall(SYS_futex, word(), FUTEX_WAIT, static_cast<uint32_t>(seen), &limit, nullptr, 0);
  }
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

void Bell::wake() {
  ::syscall(SYS_futex, word(), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace lockstep::comm
