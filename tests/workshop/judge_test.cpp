// What a judge sees of a program, whatever it wrote where its facts are awaited.
#include "course/workshop/judge.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lockstep::workshop {
namespace {

RankRun rank_with(const std::string& facts) {
  return {1, {.facts = facts}};
}

std::string why_no_mean(const RankRun& rank) {
  try {
    rank.number("mean");
  } catch (const NotYet& word) {
    return word.what();
  }
  return "";
}

TEST(Judge, SeesTheLastOfSeveralFactsOfOneName) {
  EXPECT_EQ(rank_with("{\"name\":\"mean\",\"numbers\":[1]}\n{\"name\":\"mean\",\"numbers\":[2.5]}\n")
                .number("mean"),
            2.5);
}

TEST(Judge, PassesOverALineThatIsCutOff) {
  EXPECT_EQ(why_no_mean(rank_with("{\"name\":\"mean\",\"numb")), "rank 1 never showed `mean`");
}

TEST(Judge, PassesOverWhatIsNoFact) {
  const std::string forged =
      "[]\n7\nnull\n{\"name\":3}\n{}\n\xff\xfe\n{\"name\":\"mean\"\n" + std::string(5000, '[') + "\n";
  const auto rank = rank_with(forged + "{\"name\":\"mean\",\"numbers\":[4]}\n");
  EXPECT_EQ(rank.shown().size(), 1u);
  EXPECT_EQ(rank.number("mean"), 4);
}

TEST(Judge, TakesAFactOfTheWrongKindForOneWithoutNumbers) {
  EXPECT_EQ(why_no_mean(rank_with("{\"name\":\"mean\",\"numbers\":\"five\"}\n")),
            "rank 1 showed 0 numbers as `mean`, and one is wanted");
}

TEST(Judge, ReadsNumbersThatJsonHasNoWordFor) {
  const auto rank = rank_with("{\"name\":\"row\",\"numbers\":[\"nan\",\"inf\",\"-inf\",{}]}\n");
  const auto& row = rank.numbers("row");
  EXPECT_TRUE(std::isnan(row[0]) && std::isnan(row[3]));
  EXPECT_TRUE(std::isinf(row[1]) && row[1] > 0 && row[2] < 0);
}

TEST(Judge, FindsNotANumberNearNothing) {
  EXPECT_FALSE(near(std::nan(""), std::nan("")));
  EXPECT_TRUE(near(1e9 + 1, 1e9));
  EXPECT_FALSE(near(1.001, 1));
}

TEST(Judge, ShowsALongRowByItsBeginningAndItsEnd) {
  std::vector<double> row(100);
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<double>(i);
  EXPECT_EQ(shown(row), "0 1 2 3 4 5 6 7 8 9 ... 99");
}

}  // namespace
}  // namespace lockstep::workshop
