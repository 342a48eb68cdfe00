#pragma once
// How long something took.

#include <chrono>

namespace lockstep::bench {

using Clock = std::chrono::steady_clock;

/// In seconds.
inline double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace lockstep::bench
