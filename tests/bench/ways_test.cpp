#include "tools/bench/ways.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::bench {
namespace {

// One rank alone: its sum is its own numbers.
TEST(Ways, AWrongSumIsAnError) {
  const Team team({}, {}, at::kCPU);
  const Way right{.name = "right", .sum = [](at::Tensor&) {}};
  const Way wrong{.name = "wrong", .sum = [](at::Tensor& tensor) { tensor.view({-1})[-1] += 1; }};
  EXPECT_EQ(measured(team, {right, right}, 400, 3, [] {}).size(), 2u);
  try {
    measured(team, {right, wrong}, 400, 3, [] {});
    FAIL() << "a wrong sum was taken";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "wrong summed 100 floats wrongly");
    EXPECT_EQ(error.exit_status(), kFailed);
  }
}

}  // namespace
}  // namespace lockstep::bench
