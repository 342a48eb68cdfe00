// What benches read, and the tables that they make.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "tools/bench/measure.h"

namespace lockstep::bench {
namespace {

TEST(Units, AreReadAsTheyAreWritten) {
  EXPECT_DOUBLE_EQ(parse_latency("200us"), 200e-6);
  EXPECT_DOUBLE_EQ(parse_latency("1.5ms"), 1.5e-3);
  EXPECT_DOUBLE_EQ(parse_latency("0"), 0);
  EXPECT_DOUBLE_EQ(parse_bandwidth("1Gbit"), 125e6);
  EXPECT_DOUBLE_EQ(parse_bandwidth("100Mbit"), 12.5e6);
  EXPECT_EQ(parse_sizes("4,1K,16K,8M"), (std::vector<int64_t>{4, 1024, 16384, 8 << 20}));
}

TEST(Units, WhatIsNoneIsRefused) {
  for (const auto* text : {"", "5", "us", "-1us", "1h", "1 us", "nanus", "1e-3s"})
    EXPECT_THROW(parse_latency(text), InputError) << text;
  for (const auto* text : {"1", "1Gbyte", "-1Gbit", "Gbit"})
    EXPECT_THROW(parse_bandwidth(text), InputError) << text;
  for (const auto* text : {"", "3", "6", "4,4", "8,4", "2000M", "4,,8", "1G", "0"})
    EXPECT_THROW(parse_sizes(text), InputError) << text;
}

TEST(Curves, CrossWhereAnotherBecomesTheFastest) {
  const std::vector<int64_t> sizes = {4, 1024, 4096, 1 << 20};
  EXPECT_EQ(crossovers(sizes, {{"few", {1, 2, 8, 900}}, {"many", {5, 5, 6, 10}}}),
            "few up to 1 KiB, then many");
  EXPECT_EQ(crossovers(sizes, {{"few", {1, 2, 3, 4}}, {"many", {5, 5, 6, 10}}}), "few");
  EXPECT_EQ(crossovers(sizes, {{"a", {1, 9, 1, 9}}, {"b", {2, 2, 2, 2}}}),
            "a up to 4 B, then b up to 1 KiB, then a up to 4 KiB, then b");
  EXPECT_EQ(crossovers(sizes, {}), "");
}

TEST(Turns, HaveTheMedianOfEachNumberAndWarmUp) {
  std::vector<std::pair<size_t, int>> turns;
  const auto medians =
      interleaved_medians(Team({}, {}, at::kCPU), /*methods=*/2, /*warm_up=*/1, /*rounds=*/3,
                          [&](size_t method, int round) -> std::vector<double> {
                            turns.emplace_back(method, round);
                            return {10.0 * static_cast<double>(method) + round, -1.0 * round};
                          });
  EXPECT_EQ(medians, (std::vector<std::vector<double>>{{2, -2}, {12, -2}}));
  EXPECT_EQ(turns.size(), 8U);
  EXPECT_EQ(turns[1], (std::pair<size_t, int>{1, 0})) << "one after the other within a round";
}

// One rank alone: its sum is its own numbers.
TEST(AllReduce, AWrongSumIsAnError) {
  const Team team({}, {}, at::kCPU);
  const SumMethod right{.name = "right", .sum = [](at::Tensor&) {}};
  const SumMethod wrong{.name = "wrong", .sum = [](at::Tensor& tensor) { tensor.view({-1})[-1] += 1; }};
  EXPECT_EQ(measured(team, {right, right}, 400, 3, [] {}).size(), 2u);
  EXPECT_THROW(measured(team, {right, wrong}, 400, 3, [] {}), Error);
}

TEST(Overlap, IsWhatOfTheExchangeDoesNotShow) {
  const auto table = table_of({{"compute only", 0.100, 0, 0},
                               {"after backward", 0.140, 0.040, 0.042},
                               {"DDP's buckets", 0.110, 0.050, 0.010}});
  EXPECT_EQ(table[1], (std::vector<std::string>{"compute only", "100.0", "0.0", "0.0", "0.0", "-"}));
  EXPECT_EQ(table[2], (std::vector<std::string>{"after backward", "140.0", "40.0", "42.0", "0.0", "0"}));
  EXPECT_EQ(table[3], (std::vector<std::string>{"DDP's buckets", "110.0", "50.0", "10.0", "40.0", "80"}));
}

using train::Phase;

// Its phases are 1, 2, ... `unit`s.
RankSteps rank_of(double unit, const std::string& host = "node") {
  RankSteps rank;
  rank.host = host;
  for (size_t i = 0; i < train::kPhases; ++i) rank.phases[i] = static_cast<double>(i + 1) * unit;
  rank.median = rank.min = rank.max = 21 * unit;
  rank.flop_forward = 10e9;
  rank.flop_backward = 20e9;
  rank.peak_flops = 100e9;
  return rank;
}

StepResult found_of(std::vector<RankSteps> ranks) {
  StepResult found;
  found.training = {{"task", "mnist"}, {"model", "mlp"},      {"device", "cpu"},  {"backend", "gloo"},
                    {"mode", "ddp"},   {"precision", "fp32"}, {"layout", "nchw"}, {"kernels", "exact"}};
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

TEST(Speed, IsOfAllRanksTogether) {
  const std::vector<RankSteps> ranks = {rank_of(0.1), rank_of(0.2)};
  const auto forward = speeds_of(ranks).front();
  EXPECT_DOUBLE_EQ(forward.a_step, 20e9);
  EXPECT_DOUBLE_EQ(forward.a_second, 10e9 / 0.2 + 10e9 / 0.4);
  EXPECT_DOUBLE_EQ(forward.of_peak, 75.0 / 200);
  EXPECT_DOUBLE_EQ(speeds_of(ranks).back().a_second, 30e9 / 2.1 + 30e9 / 4.2);
}

TEST(StepTable, HasPartsThatAddUpAndNamesWhoHasTheMost) {
  const auto table = phase_table({rank_of(0.002), rank_of(0.004)});
  EXPECT_EQ(table.front(), (std::vector<std::string>{"milliseconds per step", "mean", "%", "min", "median",
                                                     "max", "max on"}));
  EXPECT_EQ(table.back(),
            (std::vector<std::string>{"step", "63.0", "100", "42.0", "63.0", "84.0", "rank 1"}));
  double sum = 0;
  for (size_t row = 1; row <= train::kPhases; ++row) sum += std::stod(table[row][1]);
  EXPECT_NEAR(sum, 63, 1e-9);
  EXPECT_EQ(phase_table({rank_of(0.00001)}).front()[0], "microseconds per step");
  EXPECT_EQ(phase_table({rank_of(0.00001)}).front().size(), 3u) << "one rank has no spread";
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
  found.ranks[0].flop_forward = found.ranks[0].flop_backward = 0;
  EXPECT_TRUE(says(found, "not counted"));
  EXPECT_EQ(page_of(found).as_text().find("GFLOP a"), std::string::npos);
  found = plain;
  found.training["device"] = "cuda:0";
  EXPECT_TRUE(says(found, "phases are GPU time"));
  EXPECT_EQ(page_of(found).as_text().find("peak of 1 rank"), std::string::npos);
  found = plain;
  found.training["kernels"] = "fast";
  EXPECT_TRUE(says(found, "own kernels may need fewer"));
  found = found_of({rank_of(0.5), rank_of(0.5)});
  found.ranks[1].peak_flops = 50e9;
  EXPECT_TRUE(says(found, "peaks differ: 50 GFLOP/s to 100 GFLOP/s (rank 0)"));
}

RankSteps busy(const std::string& host, const ProcessorTime& time) {
  auto rank = rank_of(0.5, host);
  rank.processors = time;
  return rank;
}

TEST(MachineUse, TellsOfOthersOnANodeAndNotOfItsOwnRanks) {
  const ProcessorTime half_ours = {.all = 20, .idle = 10, .stolen = 0, .own = 5};
  const auto a = busy("a", half_ours), b = busy("b", {20, 10, 0, 1});
  EXPECT_TRUE(busy_nodes({a, a}).empty());
  const auto lines = busy_nodes({a, a, b, b});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("b was busy: other processes used 40 %"), std::string::npos) << lines[0];
  EXPECT_NE(busy_nodes({busy("c", {20, 10, 3, 7})})[0].find("other virtual machines took 15 %"),
            std::string::npos);
  EXPECT_TRUE(busy_nodes({busy("d", {0.04, 0, 0, 0})}).empty()) << "too short to say";
}

TEST(Peak, IsMeasuredOnAnyProcessor) {
  EXPECT_GT(measure_peak(Team({}, {}, at::kCPU)), 1e8);
}

}  // namespace
}  // namespace lockstep::bench
