#include "lockstep/base/awake.h"

#include <gtest/gtest.h>

namespace lockstep::base {
namespace {

using namespace std::chrono_literals;

TEST(AwakeTime, IsTheClocksWhileSomebodyLooks) {
  const auto start = AwakeTime::Clock::now();
  AwakeTime time;
  time.passed_at(start);
  for (auto at = 0ms; at <= 3000ms; at += 300ms) time.passed_at(start + at);
  EXPECT_NEAR(std::chrono::duration<double>(time.passed_at(start + 3s)).count(), 3, 0.1);
}

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
