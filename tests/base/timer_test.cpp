#include "lockstep/base/timer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <thread>

#include "lockstep/base/clock.h"
#include "lockstep/base/run_for.h"

namespace lockstep::base {
namespace {

using namespace std::chrono_literals;

TEST(Timer, LooksUntilThereIsNothingMoreToLookFor) {
  std::atomic<int> looks = 0;
  std::promise<void> third;
  const Timer timer(1ms, [&] {
    if (++looks == 3) third.set_value();
    return looks < 3;
  });
  third.get_future().wait();
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(looks, 3);
}

TEST(Timer, MayEndInItsOwnCallAndIsWaitedForOtherwise) {
  std::promise<void> ended;
  std::optional<Timer> own;
  own.emplace(1ms, [&] {
    own.reset();
    ended.set_value();
    return true;
  });
  ended.get_future().wait();

  std::atomic<bool> under_way = false, over = false;
  {
    const Timer other(1ms, [&] {
      under_way = true;
      std::this_thread::sleep_for(50ms);
      over = true;
      return false;
    });
    while (!under_way) std::this_thread::yield();
  }
  EXPECT_TRUE(over);
}

// As a group does that its own watch keeps alive.
TEST(Timer, MayOwnAnotherTimer) {
  auto inner = std::make_shared<Timer>(1ms, [] { return true; });
  const std::weak_ptr<Timer> seen = inner;
  {
    const Timer outer(1ms, [inner = std::move(inner)] { return true; });
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_TRUE(seen.expired());
  std::promise<void> ended;
  const Timer last(1ms, [&] { return ended.set_value(), false; });
  EXPECT_EQ(ended.get_future().wait_for(10min), std::future_status::ready);
}

TEST(RunFor, LeavesBehindWhatTakesTooLong) {
  EXPECT_EQ(run_for(10min, [] { return 7; }), 7);
  EXPECT_EQ(run_for(1ms, [] { return std::this_thread::sleep_for(2s), 7; }), std::nullopt);
  EXPECT_THROW(run_for(10min, []() -> int { throw 7; }), int);
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
