#include "tools/bench/step_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace lockstep::bench {
namespace {

using train::Phase;

// Its phases are 1, 2, ... `unit`s.
RankSteps rank_of(double unit, const std::string& host = "node") {
  RankSteps rank;
  rank.host = host;
  for (size_t i = 0; i < train::kPhases; ++i) rank.phases[i] = static_cast<double>(i + 1) * unit;
  rank.median = rank.least = rank.longest = 21 * unit;
  rank.work = {10e9, 20e9};
  rank.peak = 100e9;
  return rank;
}

StepResult found_of(std::vector<RankSteps> ranks) {
  StepResult found;
  found.training = {"task", "model", "cpu", "gloo", "ddp", "fp32", "nchw", "exact"};
  found.steps = 50;
  found.samples = 256;
  found.ranks = std::move(ranks);
  return found;
}

bool says(const StepResult& found, const std::string& words) {
  for (const auto& note : notes_of(found))
    if (note.find(words) != std::string::npos) return true;
  return false;
}

TEST(RankSteps, PhasesAddUpToTheStep) {
  const auto rank = rank_of(0.001);
  EXPECT_DOUBLE_EQ(rank.step(), 0.021);
  EXPECT_DOUBLE_EQ(rank.own_work(), 0.001 + 0.002 + 0.003 + 0.005) << "all but waiting and other";
}

TEST(Spread, OfAnEvenNumberHasItsMedianInBetween) {
  const auto spread = spread_of({4, 1, 9, 2});
  EXPECT_EQ(spread.mean, 4);
  EXPECT_EQ(spread.least, 1);
  EXPECT_EQ(spread.median, 3);
  EXPECT_EQ(spread.most, 9);
  EXPECT_EQ(spread.at_most, 2u);
}

TEST(Speed, IsOfAllRanksTogether) {
  const std::vector<RankSteps> ranks = {rank_of(0.1), rank_of(0.2)};
  const auto forward = speed_of(step_parts().front(), ranks);
  EXPECT_DOUBLE_EQ(forward.a_step, 20e9);
  EXPECT_DOUBLE_EQ(forward.a_second, 10e9 / 0.2 + 10e9 / 0.4);
  EXPECT_DOUBLE_EQ(forward.of_peak, 75.0 / 200);
  EXPECT_DOUBLE_EQ(speed_of(step_parts().back(), ranks).a_second, 30e9 / 2.1 + 30e9 / 4.2);
}

TEST(StepTable, HasPartsThatAddUpAndNamesWhoHasTheMost) {
  const auto table = phase_table({rank_of(0.002), rank_of(0.004)});
  EXPECT_EQ(table.front(), (std::vector<std::string>{"milliseconds per step", "mean", "%", "min", "median",
                                                     "max", "most on"}));
  EXPECT_EQ(table.back(),
            (std::vector<std::string>{"step", "63.0", "100", "42.0", "63.0", "84.0", "rank 1"}));
  double sum = 0;
  for (size_t row = 1; row <= train::kPhases; ++row) sum += std::stod(table[row][1]);
  EXPECT_NEAR(sum, 63, 1e-9);
  EXPECT_EQ(phase_table({rank_of(0.00001)}).front()[0], "microseconds per step");
  EXPECT_EQ(phase_table({rank_of(0.00001)}).front().size(), 3u) << "one rank has no spread";
}

TEST(StepText, FitsATerminalAndShowsUnevenRanks) {
  auto found = found_of({rank_of(0.002, "one"), rank_of(0.004, std::string(64, 'h'))});
  found.crowded = true;
  found.training.precision = "bf16";
  const auto text = page_of(found).as_text();
  EXPECT_NE(text.find("most work: rank 1 on hhh"), std::string::npos) << text;
  for (size_t begin = 0; begin < text.size();) {
    const auto end = text.find('\n', begin);
    EXPECT_LE(end - begin, text.compare(begin, 9, "most work") == 0 ? 160u : 80u)
        << text.substr(begin, end - begin);
    begin = end + 1;
  }
  for (const char letter : text) EXPECT_TRUE(letter == '\n' || (letter >= ' ' && letter <= '~'));
}

TEST(StepJson, HoldsEveryRankAndTheSums) {
  const auto json = nlohmann::json::parse(json_of(found_of({rank_of(0.002), rank_of(0.004, "\xff")})));
  EXPECT_DOUBLE_EQ(json["seconds_a_step"].get<double>(), 0.063);
  double sum = 0;
  for (const auto& [name, seconds] : json["phases"].items()) sum += seconds.get<double>();
  EXPECT_DOUBLE_EQ(sum, 0.063);
  EXPECT_EQ(json["ranks"].size(), 2u);
  EXPECT_DOUBLE_EQ(json["ranks"][1]["phases"]["forward"].get<double>(), 0.008);
  EXPECT_DOUBLE_EQ(json["arithmetic"]["both"]["flop"].get<double>(), 60e9);
}

TEST(StepNotes, SayWhatTheNumbersAreNot) {
  const auto plain = found_of({rank_of(0.5)});
  EXPECT_TRUE(notes_of(plain).empty());
  auto found = plain;
  found.ranks[0].work = {};
  EXPECT_TRUE(says(found, "not counted"));
  EXPECT_EQ(page_of(found).as_text().find("GFLOP a"), std::string::npos);
  found = plain;
  found.training.device = "cuda:0";
  EXPECT_TRUE(says(found, "phases are GPU time"));
  EXPECT_EQ(page_of(found).as_text().find("peak of 1 rank"), std::string::npos);
  found = plain;
  found.training.kernels = "fast";
  EXPECT_TRUE(says(found, "own kernels may need fewer"));
  found = found_of({rank_of(0.5), rank_of(0.5)});
  found.ranks[1].peak = 50e9;
  EXPECT_TRUE(says(found, "peaks differ: 50 GFLOP/s to 100 GFLOP/s (rank 0)"));
}

TEST(MachineUse, TellsOfOthersOnANodeAndNotOfItsOwnRanks) {
  const ProcessorTime half_ours = {.all = 20, .idle = 10, .stolen = 0, .own = 5};
  EXPECT_TRUE(busy_nodes({{"a", half_ours}, {"a", half_ours}}).empty());
  auto quiet = half_ours;
  quiet.own = 1;
  const auto lines = busy_nodes({{"a", half_ours}, {"a", half_ours}, {"b", quiet}, {"b", quiet}});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("b was busy: other processes used 40 %"), std::string::npos) << lines[0];
  EXPECT_NE(busy_nodes({{"c", {20, 10, 3, 7}}})[0].find("other machines used 15 %"), std::string::npos);
  EXPECT_TRUE(busy_nodes({{"d", {0.04, 0, 0, 0}}}).empty()) << "too short to say";
}

TEST(Peak, IsMeasuredOnAnyProcessor) {
  EXPECT_GT(measure_peak(Team({}, {}, at::kCPU)), 1e8);
}

}  // namespace
}  // namespace lockstep::bench
