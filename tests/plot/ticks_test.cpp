// Marks stand at round numbers.
#include "tools/plot/ticks.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep::plot {
namespace {

TEST(ShortNumber, HasTheUnitOfItsAxis) {
  EXPECT_EQ(short_number(1500), "1.5k");
  EXPECT_EQ(short_number(0.25), "0.25");
  EXPECT_EQ(short_number(-2e6), "-2M");
  EXPECT_EQ(short_number(65536, Unit::bytes), "64 KiB");
  EXPECT_EQ(short_number(2e-6, Unit::seconds), "2 µs");
  EXPECT_EQ(short_number(90, Unit::seconds), "1.5 min");
  EXPECT_EQ(short_number(std::numeric_limits<double>::quiet_NaN()), "–");
}

TEST(Axis, OfNumbersHasRoundMarksAroundThem) {
  const Axis axis({0.13, 2.2}, false, Unit::plain);
  EXPECT_EQ(axis.ticks(), (std::vector<double>{0, 0.5, 1, 1.5, 2, 2.5}));
  EXPECT_DOUBLE_EQ(axis.place(1.25), 0.5);
}

TEST(Axis, LogarithmicHasDecades) {
  const Axis axis({1, 10000}, true, Unit::plain);
  EXPECT_EQ(axis.ticks(), (std::vector<double>{1, 10, 100, 1000, 10000}));
  EXPECT_DOUBLE_EQ(axis.place(100), 0.5);
  EXPECT_FALSE(axis.shows(0));
}

TEST(Axis, IsThereForWhateverComes) {
  const double huge = std::numeric_limits<double>::max(), tiny = std::numeric_limits<double>::denorm_min();
  for (const bool log : {false, true}) {
    for (const auto& values : std::vector<std::vector<double>>{{},
                                                               {0},
                                                               {-1, -1},
                                                               {tiny},
                                                               {huge, -huge},
                                                               {1e299, -1e299},
                                                               {1, 1 + 1e-15},
                                                               {1e-299, 1e299},
                                                               {3, 4}}) {
      for (const auto unit : {Unit::plain, Unit::bytes, Unit::seconds}) {
        const Axis axis(values, log, unit, !log);
        ASSERT_GE(axis.ticks().size(), 2U);
        ASSERT_LE(axis.ticks().size(), 42U);
        for (const double tick : axis.ticks())
          EXPECT_TRUE(axis.place(tick) > -0.01 && axis.place(tick) < 1.01);
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::plot
