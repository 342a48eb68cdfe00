#include "lockstep/base/text.h"

#include <gtest/gtest.h>

#include "lockstep/base/log.h"

namespace lockstep {
namespace {

TEST(Wrap, BreaksBetweenWordsAlone) {
  EXPECT_EQ(base::wrapped("one two three four five", 20), "one two three four\n  five");
  EXPECT_EQ(base::wrapped("  hint: look at the log of rank 3", 20), "  hint: look at the\n    log of rank 3");
  EXPECT_EQ(base::wrapped("a /very/long/path/that/no/line/holds b", 20),
            "a\n  /very/long/path/that/no/line/holds\n  b");
  EXPECT_EQ(base::wrapped("short\n\nlines\n", 20), "short\n\nlines\n");
  EXPECT_EQ(base::wrapped("ä ö ü ä ö ü ä ö ü ä", 20), "ä ö ü ä ö ü ä ö ü ä");  // letters, not bytes
  EXPECT_EQ(base::wrapped("one two three four five", 0), "one two three four five");
}

TEST(Log, MarksTheLevelByAColour) {
  const auto warning = [](bool colour) {
    ::testing::internal::CaptureStderr();
    log::set_colour(colour);
    log::warning("one two");
    log::set_colour(false);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(warning(false), "warning: one two\n");
  EXPECT_EQ(warning(true), "\x1b[33mwarning:\x1b[0m one two\n");
}

}  // namespace
}  // namespace lockstep
