// What benches read, and the tables that they make.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

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

TEST(Units, AreWrittenForPeople) {
  EXPECT_EQ(delay_text(200e-6, 125e6), "200 us per message, 1 Gbit/s per link");
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
  const auto medians = medians_in_turns(Team({}, {}, at::kCPU), {.methods = 2, .rounds = 3, .warm_up = 1},
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
  const Way right{.name = "right", .sum = [](at::Tensor&) {}};
  const Way wrong{.name = "wrong", .sum = [](at::Tensor& tensor) { tensor.view({-1})[-1] += 1; }};
  EXPECT_EQ(measured(team, {right, right}, 400, 3, [] {}).size(), 2u);
  try {
    measured(team, {right, wrong}, 400, 3, [] {});
    FAIL() << "a wrong sum was taken";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "wrong computed a wrong sum of 100 floats");
    EXPECT_EQ(error.exit_status(), kFailed);
  }
}

TEST(Overlap, IsWhatOfTheExchangeDoesNotShow) {
  const auto table = table_of({{"compute only", 0.100, 0, 0},
                               {"after backward", 0.140, 0.040, 0.042},
                               {"DDP's buckets", 0.110, 0.050, 0.010}});
  EXPECT_EQ(table[1], (std::vector<std::string>{"compute only", "100.0", "0.0", "0.0", "0.0", "-"}));
  EXPECT_EQ(table[2], (std::vector<std::string>{"after backward", "140.0", "40.0", "42.0", "0.0", "0"}));
  EXPECT_EQ(table[3], (std::vector<std::string>{"DDP's buckets", "110.0", "50.0", "10.0", "40.0", "80"}));
}

}  // namespace
}  // namespace lockstep::bench
