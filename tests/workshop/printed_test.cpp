// What a learner's ranks printed, beside what is not right yet.
#include "course/workshop/check.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::workshop {
namespace {

TEST(Printed, EachRanksLinesBearItsNumberAndTheirPlaceIsNamedOnce) {
  EXPECT_EQ(printed_words({"a\nb\n", "", "c"}, "", "build/run/x.1"),
            "rank 0 printed: a\nrank 0 printed: b\nrank 2 printed: c\n"
            "(all of it: build/run/x.1/rank-N.log)");
}

TEST(Printed, NothingIsNothing) {
  EXPECT_EQ(printed_words({"", "\n"}, "", "build"), "");
}

TEST(Printed, AFloodIsCutToItsLastLinesOfAFewRanks) {
  std::string flood;
  for (int i = 0; i < 100000; ++i) flood += std::to_string(i) + "\n";
  flood += std::string(5000, 'x') + "\n";
  const auto words = printed_words(std::vector<std::string>(64, flood), "", "build");
  EXPECT_EQ(std::count(words.begin(), words.end(), '\n'), 4 * 5);
  EXPECT_NE(words.find("rank 0 printed: 99999\n"), std::string::npos);
  EXPECT_LT(words.size(), 4000u);
}

TEST(Printed, WhatIsSaidAlreadyAndLockstepsOwnErrorAreLeftOut) {
  EXPECT_EQ(printed_words({"again\nmine\n[rank 0] error: lost\n  where: here\n"}, "left: again", "build"),
            "rank 0 printed: mine\n(all of it: build/rank-N.log)");
}

TEST(Printed, WhatATerminalWouldObeyIsNotPassedOn) {
  EXPECT_EQ(printed_words({"\x1b[2Jgone"}, "", "build").find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace lockstep::workshop
