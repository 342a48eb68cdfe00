#pragma once
// Time in which this process ran. A scheduler may suspend all processes of a job (SIGSTOP) and let them go on
// hours later: whoever waits for another process is not to count that.

#include <chrono>

namespace lockstep::base {

/// Counts from its making, for one thread that looks often: a longer gap between two looks than half a second
/// is a suspension, and counts for that much.
class AwakeTime {
 public:
  using Clock = std::chrono::steady_clock;

  Clock::duration passed() { return passed_at(Clock::now()); }
  Clock::duration passed_at(Clock::time_point now);

 private:
  Clock::time_point looked_ = Clock::now();
  Clock::duration passed_{};
};

}  // namespace lockstep::base
