#include "lockstep/base/awake.h"

#include <algorithm>

namespace lockstep::base {
namespace {

// Above what a thread of a busy machine waits for its turn.
constexpr AwakeTime::Clock::duration kLongestGap = std::chrono::milliseconds(500);

}  // namespace

AwakeTime::Clock::duration AwakeTime::passed_at(Clock::time_point now) {
  passed_ += std::min(now - looked_, kLongestGap);
  looked_ = now;
  return passed_;
}

}  // namespace lockstep::base
