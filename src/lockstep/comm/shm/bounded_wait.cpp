#include "lockstep/comm/shm/bounded_wait.h"

#include <sched.h>

namespace lockstep::comm {

void BoundedWait::turn(int rank) {
  turn(rank, [](std::chrono::milliseconds) { ::sched_yield(); });
}

void BoundedWait::look_up(int rank) {
  constexpr auto kBetweenLooks = std::chrono::milliseconds(100);
  const auto now = std::chrono::steady_clock::now();
  if (awake_.passed_at(now) > timeout_) throw WaitExpired{true};
  if (next_look_ && now < *next_look_) return;
  const bool first = !next_look_;
  next_look_ = now + kBetweenLooks;
  if (first) return;
  // another rank may have found an error and given up
  if (monitor_.is_dead() || monitor_.knows_death()) throw WaitExpired{false};
  if (rank >= 0 && monitor_.is_lost(rank, collective_)) throw WaitExpired{false};
}

}  // namespace lockstep::comm
