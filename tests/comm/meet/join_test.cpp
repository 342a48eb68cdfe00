#include "lockstep/comm/meet/join.h"

#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

TEST(Difference, IsEmptyWhereAllAreAlike) {
  EXPECT_EQ(difference({{{"optim.lr", "0.1"}}, {{"optim.lr", "0.1"}}}), "");
  EXPECT_EQ(difference({}), "");
  EXPECT_EQ(difference({{{"a", "1"}}, {{"a", "1"}, {"b", "2"}}}), "b is not set on rank 0, 2 on rank 1");
}

TEST(Difference, NamesTheKeyAndTheRank) {
  EXPECT_EQ(difference({{{"optim.lr", "0.1"}}, {{"optim.lr", "0.1"}}, {{"optim.lr", "0.2"}}}),
            "optim.lr is 0.1 on rank 0, 0.2 on rank 2");
  EXPECT_EQ(difference({{{"a", "1"}, {"b", "x"}}, {{"a", "2"}, {"b", "y"}}, {{"a", "2"}, {"b", "x"}}}),
            "a is 1 on rank 0, 2 on ranks 1 and 2; b is x on rank 0, y on rank 1");
}

TEST(Difference, WhatIsPrintedIsSafe) {
  const auto text = difference({{{"run.name", "a"}}, {{"run.name", "\x1b[2J" + std::string(5000, 'x')}}});
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_LT(text.size(), 300U);
}

// ssh gives a rank no scheduler's variables
TEST(Difference, AnUnknownJobIdIsAnybodys) {
  EXPECT_EQ(difference({{{"job id", ""}}, {{"job id", "7"}}, {{"job id", "7"}}}), "");
  EXPECT_EQ(difference({{{"job id", ""}}, {{"job id", "7"}}, {{"job id", "8"}}}),
            "job id is 7 on rank 1, 8 on rank 2");
}

}  // namespace
}  // namespace lockstep::comm
