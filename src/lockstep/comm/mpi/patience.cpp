#include "lockstep/comm/mpi/patience.h"

#include <sched.h>

#include "lockstep/launch/process/mpi.h"

namespace lockstep::comm {
namespace {

// With a core for each rank the other is usually microseconds away; with fewer cores it needs this one.
constexpr int kSpins = 20'000;
constexpr int kCrowdedSpins = 50;
// Above what ranks with a core each are apart in a step of a small model; waking takes a third of it.
constexpr auto kSpinBeforeSleep = std::chrono::microseconds(150);
constexpr int kSpinsPerClock = 64;
constexpr int kYieldsPerLook = 8;  // a yield on a crowded node may last 10 ms
constexpr auto kLookAtRank = std::chrono::milliseconds(100);

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

void require_success(int code, const char* call) {
  if (code != mpi::kSuccess) throw OutOfPatience{false, launch::mpi_failure(code, call)};
}

Patience::Patience(const RollCall& roll, uint64_t collective, std::chrono::milliseconds timeout, bool crowded)
    : roll_(roll),
      collective_(collective),
      timeout_(timeout),
      next_look_(std::chrono::steady_clock::time_point::max()),
      crowded_(crowded) {}

bool Patience::spins_before_sleep() {
  if (sleepy_) return false;
  pause_briefly();
  ++turns_;
  if (crowded_) {
    sleepy_ = turns_ > kCrowdedSpins;
  } else if (turns_ % kSpinsPerClock == 0) {
    const auto now = std::chrono::steady_clock::now();
    if (turns_ == kSpinsPerClock) spin_end_ = now + kSpinBeforeSleep;
    sleepy_ = now >= spin_end_;
  }
  return true;
}

void Patience::turn(int rank) {
  if (++turns_ <= (crowded_ ? kCrowdedSpins : kSpins)) return pause_briefly();
  ::sched_yield();
  if (turns_ % kYieldsPerLook == 0) look_up(rank);
}

void Patience::look_up(int rank) {
  const auto now = std::chrono::steady_clock::now();
  if (awake_.passed_at(now) > timeout_) throw OutOfPatience{true};
  if (next_look_ == std::chrono::steady_clock::time_point::max()) next_look_ = now + kLookAtRank;
  if (now < next_look_) return;
  if (roll_.heard_nothing()) throw OutOfPatience{false};
  next_look_ = now + kLookAtRank;
  if (rank >= 0 && roll_.is_lost(rank, collective_)) throw OutOfPatience{false};
}

}  // namespace lockstep::comm
