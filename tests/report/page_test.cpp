// A page is one file that no text can change, and the same as text for a terminal.
#include "tools/report/page.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>

#include "lockstep/base/text.h"

namespace lockstep::report {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

TEST(Numbers, HaveThreeDigitsAndAUnit) {
  EXPECT_EQ(number_text(1500), "1.5k");
  EXPECT_EQ(number_text(0.25), "0.25");
  EXPECT_EQ(number_text(-2e6), "-2M");
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(kNan), "–");
  EXPECT_EQ(bytes_text(4), "4 B");
  EXPECT_EQ(bytes_text(1.5 * 1024), "1.5 KiB");
  EXPECT_EQ(seconds_text(2e-6), "2 us");
  EXPECT_EQ(seconds_text(0.0123), "12.3 ms");
  EXPECT_EQ(seconds_text(24.1), "24.1 s") << "not 2.41e+04 ms";
  EXPECT_EQ(seconds_text(2000), "33.3 min");
  EXPECT_EQ(axis_text(65536, "message (bytes)"), "64 KiB");
  EXPECT_EQ(axis_text(0.002, "time (s)"), "2 ms");
  EXPECT_EQ(without_unit("time (s)"), "time");
  EXPECT_EQ(without_unit("time (of day)"), "time (of day)");
}

TEST(Page, LoadsNothingAndNoTextIsMarkup) {
  Page page("<script>alert(1)</script>{{data}}");
  page.section("</script>");
  page.text("<!-- <img alt=x> \x1b[2J \xff {{title}}");
  page.table({{"<b>", "&lt;"}, {"\u202e", "</script>"}});
  page.add("details", {{"summary", "<i>"}, {"text", "<u>"}});
  const auto html = page.html();
  for (const auto* markup : {"<script>alert", "<img", "<!--", "<b>", "<i>", "<u>", "\x1b", "\\u001b",
                             "\u202e", "src=", "@import", "url("})
    EXPECT_EQ(count(html, markup), 0U) << markup;
  EXPECT_EQ(count(html, "<script"), 2U) << "the data and the program";
  EXPECT_EQ(count(html, "</script>"), 2U);
  EXPECT_EQ(count(html, "default-src 'none'"), 1U);
  EXPECT_NE(html.find("{{title}}"), std::string::npos) << "a text keeps its braces";
  EXPECT_NE(html.find("<noscript>"), std::string::npos);
}

TEST(Page, AMillionPointsAreASmallPageWithTheirPeak) {
  Series series{"loss", {}, {}};
  for (int i = 0; i < 1000000; ++i) {
    series.x.push_back(i);
    series.y.push_back(i == 345678 ? 1000 : i % 1000 == 0 ? kNan : std::sin(i));
  }
  const auto json = chart_json({"", "", "", {series}});
  EXPECT_LT(json.dump().size(), 100000U);
  const auto y = json["series"][0]["y"].get<std::vector<double>>();
  EXPECT_EQ(*std::ranges::max_element(y), 1000);
  EXPECT_EQ(y.size(), json["series"][0]["x"].size());
}

TEST(TextBars, FitATerminalAndHaveNoControlLetters) {
  const auto text =
      text_bars({std::string(300, 'y'), "s", {std::string(99, 'z'), "\x1b"}, {"a", "b"}, {{1, 2}, {kNan}}});
  for (const auto& line : lines_of(text)) EXPECT_LE(base::letters(line), 78U) << line;
  EXPECT_EQ(count(text, "\x1b"), 0U);
}

TEST(TextBars, AreAsLongAsTheirSums) {
  const auto text =
      text_bars({"Phases", "time (s)", {"rank 0", "rank 1"}, {"data", "forward"}, {{1, 2}, {0.5, 1.5}}});
  const auto bar = [&](const std::string& name) {
    const auto line = text.substr(text.find(name + " |"));
    return std::count_if(line.begin(), line.begin() + static_cast<int64_t>(line.find('\n')),
                         [](char c) { return c == '#' || c == '='; });
  };
  EXPECT_NEAR(static_cast<double>(bar("rank 0")) / static_cast<double>(bar("rank 1")), 1.5, 0.06) << text;
}

}  // namespace
}  // namespace lockstep::report
