#include "tools/doctor/ledger.h"

#include <gtest/gtest.h>

#include "tools/doctor/node/checks.h"
#include "tools/doctor/print.h"

namespace lockstep::doctor {

TEST(Ledger, KnowsTheWorstOfItsFindingsAndTellsEachAsItComes) {
  int told = 0;
  Ledger ledger([&](const Finding&) { ++told; });
  EXPECT_EQ(ledger.verdict(), FindingLevel::ok);
  ledger.add("gpus", {fine("one"), fail("two", "do")});
  ledger.add("cpus", {warn("three", "do")});
  EXPECT_EQ(ledger.verdict(), FindingLevel::failure);
  EXPECT_EQ(told, 3);
  EXPECT_EQ(ledger.all()[1].check, "gpus");
}

TEST(Ledger, ThatIsClosedTellsAndKeepsNothingMore) {
  int told = 0;
  Ledger ledger([&](const Finding&) { ++told; });
  ledger.add("gpus", {fine("one")});
  ledger.close();
  ledger.add("cpus", {fail("two", "do")});
  EXPECT_EQ(told, 1);
  EXPECT_EQ(ledger.verdict(), FindingLevel::ok);
}

TEST(Check, ThatThrowsHasFailedByItsName) {
  const Check broken{"broken", [](const Picture&) -> Findings { throw std::runtime_error("no"); }};
  const auto findings = judge(broken, {});
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].verdict, FindingLevel::failure);
  EXPECT_EQ(findings[0].check, "broken");
}

TEST(RankFacts, TravelWholeAndRefuseWhatTheyAreNot) {
  RankFacts facts;
  facts.job.rank = 3;
  facts.job.host = "a \"b\"\n\xff";
  facts.gpus = {{.uuid = "GPU-1", .name = "H", .bus = "0000:17:00.0", .memory = 1LL << 40}};
  facts.limits.files = {1024, -1};
  const RankFacts back = unpack(pack(facts));
  EXPECT_EQ(back.job.rank, 3);
  EXPECT_EQ(back.gpus.at(0).memory, 1LL << 40);
  EXPECT_EQ(back.limits.files.hard, -1);
  EXPECT_ANY_THROW(unpack("[1]"));
  EXPECT_ANY_THROW(unpack("no json"));
}

TEST(Text, OfAFindingIsOneLineAndNoTerminalObeysIt) {
  const std::string text =
      as_text({FindingLevel::warning, "a\x1b[31mb", "do\nthis", "", "gpus"}, "[rank 1] ");
  EXPECT_EQ(text,
            "[rank 1] warning  gpus        a\\x1b[31mb\n"
            "[rank 1]                      to do: do\n"
            "[rank 1]                      this\n");
}

}  // namespace lockstep::doctor
