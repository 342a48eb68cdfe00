#include "lockstep/base/clock.h"

#include <algorithm>
#include <limits>

namespace lockstep::base {
namespace {

// Longer than a thread waits for a core on a busy machine.
constexpr AwakeTime::Clock::duration kLongestGap = std::chrono::milliseconds(500);

}  // namespace

AwakeTime::Clock::duration AwakeTime::passed_at(Clock::time_point now) {
  passed_ += std::min(now - looked_, kLongestGap);
  looked_ = now;
  return passed_;
}

std::chrono::milliseconds Deadline::left() const {
  using std::chrono::milliseconds;
  return std::max(std::chrono::ceil<milliseconds>(end_ - AwakeTime::Clock::now()), milliseconds(0));
}

// A rank leaves after rank 0 has entered, and vice versa. As in NTP the fastest barriers give the tightest
// bounds; the result is their middle.
ClockReading compare_rounds(const std::vector<ClockRound>& first, const std::vector<ClockRound>& rank) {
  double most = std::numeric_limits<double>::infinity(), least = -most;
  for (size_t i = 0; i < std::min(rank.size(), first.size()); ++i) {
    most = std::min(most, static_cast<double>(rank[i].after - first[i].before));
    least = std::max(least, static_cast<double>(rank[i].before - first[i].after));
  }
  return {rank.back().after, (most + least) / 2, (most - least) / 2};
}

}  // namespace lockstep::base
