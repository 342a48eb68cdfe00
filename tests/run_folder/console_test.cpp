#include "trainer/run_folder/console.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::run_folder {
namespace {

TEST(ProgressLine, FitsTheTerminal) {
  const Progress progress{.epoch = 1,
                          .epochs = 5,
                          .step = 100,
                          .steps = 235,
                          .loss = 0.31784,
                          .samples_per_second = 7321,
                          .seconds_left = 185};
  EXPECT_EQ(progress_line(progress, 200),
            "[########............] Epoch 2/5  step 100/235  loss 0.3178  7321 samples/s  3m05s left");
  EXPECT_EQ(progress_line(progress, 80),
            "[#####.......] Epoch 2/5  step 100/235  loss 0.3178  7321 samples/s  3m05s left");
  EXPECT_EQ(progress_line(progress, 70), "Epoch 2/5  step 100/235  loss 0.3178  7321 samples/s  3m05s left");
  EXPECT_EQ(progress_line(progress, 60), "[###.....] Epoch 2/5  step 100/235  loss 0.3178  3m05s left");
  EXPECT_EQ(progress_line(progress, 30), "Epoch 2/5  step 100/235");
  for (const int width : {0, 12, 40, 80}) {
    EXPECT_LE(progress_line(progress, width).size(), static_cast<size_t>(std::max(width - 1, 10)));
  }
}

TEST(ShortTime, ReadsAsPeopleSayIt) {
  EXPECT_EQ(short_time(-3), "0s");
  EXPECT_EQ(short_time(59.4), "59s");
  EXPECT_EQ(short_time(59.6), "1m00s");
  EXPECT_EQ(short_time(7620), "2h07m");
}

}  // namespace
}  // namespace lockstep::run_folder
