#include "lockstep/base/program.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

using Words = std::vector<std::string>;

TEST(Words, AreTrimmedOfBlanksAndLineEnds) {
  EXPECT_EQ(base::trimmed(" \ta b\r\n"), "a b");
  EXPECT_EQ(base::trimmed(" \r\n"), "");
  EXPECT_EQ(base::trimmed(""), "");
}

TEST(Words, ArePartedAtEachSign) {
  EXPECT_EQ(base::split("a,,b", ','), (Words{"a", "", "b"}));
  EXPECT_EQ(base::split("a\nb\n", '\n'), (Words{"a", "b"}));
  EXPECT_EQ(base::split("", ','), Words{});
}

}  // namespace
}  // namespace lockstep
