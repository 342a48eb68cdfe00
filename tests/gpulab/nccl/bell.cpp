#include "nccl/bell.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace lab::nccl {

void Bell::ring() {
  rings_.fetch_add(1);
  if (sleepers_.load() > 0) ::syscall(SYS_futex, &rings_, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void Bell::sleep(std::uint32_t heard, std::chrono::milliseconds longest) {
  const timespec time{longest.count() / 1000, longest.count() % 1000 * 1'000'000};
  sleepers_.fetch_add(1);
  ::syscall(SYS_futex, &rings_, FUTEX_WAIT, heard, &time, nullptr, 0);
  sleepers_.fetch_sub(1);
}

}  // namespace lab::nccl
