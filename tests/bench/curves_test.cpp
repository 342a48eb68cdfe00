#include "tools/bench/curves.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "tools/bench/overlap_report.h"
#include "tools/bench/units.h"

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
  EXPECT_EQ(bytes_text(4), "4 B");
  EXPECT_EQ(bytes_text(1.5 * 1024), "1.5 KiB");
  EXPECT_EQ(seconds_text(0.0123), "12.3 ms");
  EXPECT_EQ(delay_text(200e-6, 125e6), "200 us a message, 1 Gbit/s per link");
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

TEST(Curves, ManyAreShownAsTheFastestFewAndOneByOne) {
  const std::vector<int64_t> sizes = {4, 1024};
  std::vector<TimeCurve> curves;
  for (int i = 0; i < 7; ++i) curves.push_back({"way" + std::to_string(i), {1.0 + i, 9.0 - i}, false, i});
  const auto few = fastest_few(curves);
  ASSERT_EQ(few.size(), kFewCurves);
  EXPECT_EQ(few.front().name, "way2");
  EXPECT_EQ(fastest_few({curves[0], curves[1]}).size(), 2U);
  EXPECT_EQ(ratio_table(sizes, curves)[2], (std::vector<std::string>{"way1", "2.0", "2.7"}));
  curves.push_back({"way3 (model)", {1e-3, 1e-3}, true, 3});
  const auto charts = charts_one_by_one(sizes, curves);
  ASSERT_EQ(charts.size(), 7U);
  EXPECT_EQ(charts[3].title, "way3");
  size_t clear = 0;
  for (const auto& series : charts[3].series) clear += !series.faint;
  EXPECT_EQ(clear, 2U) << "its own, and its model's";
  for (const auto& chart : charts)
    EXPECT_EQ(std::ranges::count(chart.series, "the others", &plot::Series::name), 1) << chart.title;
  EXPECT_EQ(charts[2].series.size(), 7U) << "no other's model";
  EXPECT_EQ(charts[2].also, charts[3].also);
}

TEST(Curves, TheBusBandwidthOfAPerfectRingIsThatOfALine) {
  const auto chart = bandwidth_chart({1'000'000}, {{"ring", {1.5}}}, 4);  // 2 * 3/4 of them in 1.5 s
  EXPECT_DOUBLE_EQ(chart.series[0].y[0], 1.0);
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
