// Charts and bars: what a hostile or strange series becomes, and that pictures stand alone.
#include "tools/plot/chart.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "tools/plot/look.h"

namespace lockstep::plot {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

size_t widest(const std::string& text) {
  std::istringstream lines(text);
  size_t most = 0;
  for (std::string line; std::getline(lines, line);) most = std::max(most, letters_of(line));
  return most;
}

Chart speeds() {
  return {.title = "Speed",
          .x_label = "message (bytes)",
          .y_label = "time (s)",
          .series = {{"ours", {4, 1024, 1048576}, {1e-6, 4e-6, 2e-3}},
                     {"model", {4, 1048576}, {1e-6, 1e-3}, true}},
          .log_x = true,
          .log_y = true};
}

TEST(ChartSvg, HasALineASeriesTicksWithUnitsAndADashedModel) {
  const auto picture = svg(speeds());
  EXPECT_EQ(count(picture, "class=\"c\" stroke"), 2U) << picture;    // the line, and its sign in the legend
  EXPECT_EQ(count(picture, "class=\"c d\" stroke"), 2U) << picture;  // the model's
  for (const auto* label : {">16 B<", ">4 KiB<", ">1 MiB<", ">1 ms<", ">ours<", ">model<", ">Speed<"})
    EXPECT_NE(picture.find(label), std::string::npos) << label << "\n" << picture;
}

TEST(ChartSvg, TwelveSeriesLookApartAndAModelLikeItsSeries) {
  Chart chart;
  for (int i = 0; i < 12; ++i) chart.series.push_back({"s" + std::to_string(i), {1, 2}, {1, 2}});
  const auto many = svg(chart);
  EXPECT_EQ(count(many, "class=\"c\" stroke=\"var(--ls1)\""), 2U) << many;  // and its sign in the legend
  EXPECT_EQ(count(many, "class=\"c o\" stroke=\"var(--ls1)\""), 2U) << many;
  for (const auto* mark : {"  * s0\n", "  & s7\n", "  = s8\n", "  ~ s11\n"})
    EXPECT_EQ(count(text(chart), mark), 1U) << mark;
  chart.series = {{"a", {1, 2}, {1, 2}, false, 9}, {"a (model)", {1, 2}, {1, 2}, true, 9}};
  EXPECT_EQ(count(svg(chart), "stroke=\"var(--ls1)\""), 4U);
  EXPECT_EQ(count(text(chart), "  ^ a"), 2U);
}

TEST(ChartSvg, FaintLinesAreBehindAndNamedOnce) {
  Chart chart{.title = "t", .x_label = "", .y_label = "", .series = {{"own", {1, 2}, {1, 2}}}};
  for (const auto* name : {"the others", "", ""})
    chart.series.push_back({name, {1, 2}, {2, 1}, false, -1, true});
  const auto plain = svg(chart);
  EXPECT_EQ(count(plain, "class=\"c f\""), 4U) << "three lines, and one in the legend";
  EXPECT_EQ(count(plain, "<circle"), 2U);
  EXPECT_LT(plain.rfind("class=\"c f\""), plain.rfind("class=\"c\" stroke"));
  chart.also = {1000};
  EXPECT_NE(svg(chart).find(">1k<"), std::string::npos);
}

TEST(ChartSvg, AUnitStandsAtTheMarksAlone) {
  const auto picture = svg(speeds());
  EXPECT_NE(picture.find(">time<"), std::string::npos) << picture;
  EXPECT_NE(picture.find(">message<"), std::string::npos) << picture;
}

TEST(ChartSvg, StandsAloneInLightAndDark) {
  const auto picture = svg(speeds());
  EXPECT_EQ(count(picture, "http"), 1U) << "the name space alone";
  EXPECT_EQ(count(picture, "<script"), 0U);
  EXPECT_NE(picture.find("prefers-color-scheme:dark"), std::string::npos);
  EXPECT_NE(picture.find("viewBox"), std::string::npos);
}

TEST(ChartSvg, NamesAreNoMarkup) {
  const auto picture = svg(Chart{.title = "<script>alert(1)</script>",
                                 .x_label = "\"x\"",
                                 .y_label = "a\x1b[31m&\xff",
                                 .series = {{"</svg><img src=x>", {1, 2}, {1, 2}}, {"b", {1}, {1}}}});
  EXPECT_EQ(count(picture, "<script"), 0U);
  EXPECT_EQ(count(picture, "<img"), 0U);
  EXPECT_EQ(count(picture, "</svg>"), 1U);
  EXPECT_EQ(count(picture, "\x1b"), 0U);
}

TEST(ChartSvg, PointsThatAreNoNumbersAreLeftOut) {
  const auto whole = svg(Chart{"", "", "", {{"a", {1, 2, 3}, {1, kNan, 3}}}});
  EXPECT_EQ(count(whole, "<circle"), 2U);
  EXPECT_EQ(count(whole, "nan"), 0U);
  const auto log = svg(Chart{"", "", "", {{"a", {1, 2, 3}, {0, -1, 3}}}, false, true});
  EXPECT_EQ(count(log, "<circle"), 1U);
  EXPECT_EQ(count(log, "inf"), 0U);
}

TEST(ChartSvg, NothingToDrawIsSaid) {
  for (const auto& series : {std::vector<Series>{}, {{"a", {}, {}}}, {{"a", {1, 2}, {kNan, INFINITY}}}})
    EXPECT_NE(svg(Chart{"t", "", "", series}).find("no data yet"), std::string::npos);
}

TEST(ChartSvg, AMillionPointsAreASmallPictureWithItsPeak) {
  Series series{"loss", {}, {}};
  for (int i = 0; i < 1000000; ++i) {
    series.x.push_back(i);
    series.y.push_back(i == 345678 ? 1000 : std::sin(i));
  }
  const auto picture = svg(Chart{"", "", "", {series}});
  EXPECT_LT(picture.size(), 100000U);
  const auto path = picture.substr(picture.find(" d=\"M", picture.find("class=\"c\"")));
  const auto top = picture.find("<path class=\"g\"");
  EXPECT_NE(top, std::string::npos);
  // the peak is the highest mark of the axis, 36 units under the picture's top where there is no title
  EXPECT_NE(path.find(" 36L"), std::string::npos);
}

TEST(ChartSvg, ASinglePointAndALevelLineHaveAnAxis) {
  for (const auto& ys : {std::vector<double>{0, 0}, {5, 5}, {1e30, 1e30}, {-3, -3}}) {
    const auto picture = svg(Chart{"", "", "", {{"a", {1, 2}, ys}}});
    EXPECT_EQ(count(picture, "<circle"), 2U);
    EXPECT_EQ(count(picture, "nan") + count(picture, "inf"), 0U) << ys[0];
  }
}

Bars phases() {
  return {"Phases", "time (s)", {"rank 0", "rank 1"}, {"data", "forward"}, {{1, 2}, {0.5, 1.5}}};
}

TEST(BarsSvg, StacksEveryPartOfEveryBar) {
  const auto picture = svg(phases());
  EXPECT_EQ(count(picture, "</title></rect>"), 4U);
  EXPECT_NE(picture.find("rank 0, forward: 2 s"), std::string::npos) << picture;
}

TEST(BarsSvg, MissingAndStrangeValuesAreNoBars) {
  const auto picture = svg(Bars{"", "", {"a", "b", "<c>"}, {"x", "y"}, {{1, kNan}, {-1}}});
  EXPECT_EQ(count(picture, "</title></rect>"), 1U);
  EXPECT_EQ(count(picture, "<c>"), 0U);
}

TEST(BarsSvg, TenThousandRanksAreSomeOfThem) {
  Bars bars{"Phases", "s", {}, {"x"}, {}};
  for (int i = 0; i < 10000; ++i) {
    bars.names.push_back("rank " + std::to_string(i));
    bars.values.push_back({1.0});
  }
  const auto picture = svg(bars);
  EXPECT_NE(picture.find("128 of 10000"), std::string::npos);
  EXPECT_LT(picture.size(), 60000U);
}

TEST(ChartText, FitsTheWidthAndHasNoControlLetters) {
  auto chart = speeds();
  chart.series[0].name = std::string(300, 'x') + "\x1b[2J\n";
  for (const int width : {1, 40, 78, 200}) {
    const auto lines = text(chart, width);
    EXPECT_LE(widest(lines), static_cast<size_t>(std::max(width, 24))) << lines;
    EXPECT_EQ(count(lines, "\x1b"), 0U);
  }
}

TEST(ChartText, DrawsFromEndToEnd) {
  const auto lines = text(Chart{"Loss", "step", "loss", {{"a", {0, 10}, {0, 1}}}}, 60);
  std::istringstream in(lines);
  std::vector<std::string> rows;
  for (std::string line; std::getline(in, line);) {
    if (line.find('|') != std::string::npos) rows.push_back(line.substr(line.find('|') + 1));
  }
  ASSERT_EQ(rows.size(), 16U) << lines;
  EXPECT_EQ(rows.front().find_last_of('*'), 49U) << lines;
  EXPECT_EQ(rows.back().find('*'), 0U) << lines;
}

TEST(BarsText, AreAsLongAsTheirSums) {
  const auto lines = text(phases(), 60);
  const auto bar = [&](const std::string& name) {
    const auto line = lines.substr(lines.find(name + " |"));
    return std::count_if(line.begin(), line.begin() + static_cast<int64_t>(line.find('\n')),
                         [](char c) { return c == '#' || c == '='; });
  };
  EXPECT_NEAR(static_cast<double>(bar("rank 0")) / static_cast<double>(bar("rank 1")), 1.5, 0.06) << lines;
  EXPECT_LE(widest(lines), 60U);
}

}  // namespace
}  // namespace lockstep::plot
