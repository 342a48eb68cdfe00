#include "lockstep/launch/process/alarm.h"

#include <gtest/gtest.h>

#include <future>

namespace lockstep::launch {
namespace {

using namespace std::chrono_literals;

constexpr auto kPatience = 60s;

TEST(StallWatch, ActsOnceNoSignHasComeForTheLimitAndNotBeforeTheFirst) {
  std::promise<void> acted;
  auto happened = acted.get_future();
  StallWatch watch({100ms}, [&] { acted.set_value(); });
  EXPECT_EQ(happened.wait_for(500ms), std::future_status::timeout) << "no work has begun";
  watch.sign();
  EXPECT_EQ(happened.wait_for(kPatience), std::future_status::ready);
}

TEST(StallWatch, WaitsOnceTheWorkIsOver) {
  std::promise<void> acted;
  auto happened = acted.get_future();
  StallWatch watch({1s}, [&] { acted.set_value(); });
  watch.sign();
  watch.rest();
  EXPECT_EQ(happened.wait_for(1500ms), std::future_status::timeout);
}

TEST(StallWatch, DoesNotWaitForWhatCannotCome) {
  std::promise<void> acted;
  StallWatch watch({1h, [] { return true; }}, [&] { acted.set_value(); });
  watch.sign();
  EXPECT_EQ(acted.get_future().wait_for(kPatience), std::future_status::ready);
}

}  // namespace
}  // namespace lockstep::launch
