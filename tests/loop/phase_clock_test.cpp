#include "trainer/observe/phase_clock.h"

#include <gtest/gtest.h>

namespace lockstep::train {
namespace {

TEST(PhaseClock, AddsUpToTheTimeThatPassed) {
  PhaseClock clock;
  const auto begin = PhaseClock::Clock::now();
  clock.enter_at(Phase::forward, begin);
  clock.enter_at(Phase::backward, begin + std::chrono::seconds(1));
  clock.enter_at(Phase::waiting, begin + std::chrono::seconds(3));
  clock.enter_at(Phase::other, begin + std::chrono::seconds(6));
  const auto& seconds = clock.seconds();
  EXPECT_DOUBLE_EQ(seconds[static_cast<size_t>(Phase::forward)], 1);
  EXPECT_DOUBLE_EQ(seconds[static_cast<size_t>(Phase::backward)], 2);
  EXPECT_DOUBLE_EQ(seconds[static_cast<size_t>(Phase::waiting)], 3);
}

}  // namespace
}  // namespace lockstep::train
