#include "lockstep/comm/memory/bounded_wait.h"

#include <sched.h>

namespace lockstep::comm {
namespace {

// Before the first yield.
constexpr int kSpins = 20'000;
constexpr int kYieldsPerLook = 8;  // a yield on a crowded node may last 10 ms
constexpr auto kLookAtRank = std::chrono::milliseconds(100);

}  // namespace

BoundedWait::BoundedWait(const RollCall& roll, uint64_t collective, std::chrono::milliseconds timeout,
                         bool crowded)
    : roll_(roll),
      collective_(collective),
      timeout_(timeout),
      next_look_(std::chrono::steady_clock::time_point::max()),
      crowded_(crowded),
      spin_(crowded, SpinLength().longest()) {}

void BoundedWait::turn(int rank) {
  if (++turns_ <= (crowded_ ? Spin::kCrowdedTurns : kSpins)) return pause_briefly();
  ::sched_yield();
  if (turns_ % kYieldsPerLook == 0) look_up(rank);
}

void BoundedWait::look_up(int rank) {
  const auto now = std::chrono::steady_clock::now();
  if (awake_.passed_at(now) > timeout_) throw WaitExpired{true};
  if (next_look_ == std::chrono::steady_clock::time_point::max()) next_look_ = now + kLookAtRank;
  if (now < next_look_) return;
  // others may know more, and have given up
  if (roll_.heard_nothing() || roll_.is_dead() || roll_.knows_death()) throw WaitExpired{false};
  next_look_ = now + kLookAtRank;
  if (rank >= 0 && roll_.is_lost(rank, collective_)) throw WaitExpired{false};
}

}  // namespace lockstep::comm
