#include "trainer/observe/loss_trace.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace lockstep::train {
namespace {

TEST(LossTrace, DoesItsWorkBeforeEachWait) {
  LossTrace losses;
  int waits = 0;
  losses.before_waiting([&waits] { ++waits; });
  const auto values = at::arange(4, at::kFloat);
  losses.read_pending();
  EXPECT_EQ(waits, 0) << "nothing is on its way";
  losses.add(1, values, 0, {});
  losses.add(2, values, 1, {});
  losses.read_pending();
  EXPECT_EQ(waits, 1);
  EXPECT_EQ(losses.last(), 1);
}

}  // namespace
}  // namespace lockstep::train
