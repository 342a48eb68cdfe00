#include "lockstep/base/clock.h"

#include <gtest/gtest.h>

namespace lockstep::base {
namespace {

using namespace std::chrono_literals;

TEST(AwakeTime, ASuspensionCountsForAMoment) {
  const auto start = AwakeTime::Clock::now();
  AwakeTime time;
  time.passed_at(start + 200ms);
  const auto before = time.passed_at(start + 400ms);
  EXPECT_LE(time.passed_at(start + 2h) - before, 500ms);
  EXPECT_EQ(time.passed_at(start + 2h + 100ms) - time.passed_at(start + 2h + 100ms), 0ms);
}

}  // namespace
}  // namespace lockstep::base
