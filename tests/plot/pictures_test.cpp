// Pictures on a page: on a phone nothing is cut, on a desk no half of the page stays empty.
#include "tools/plot/pictures.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <regex>

#include "tools/plot/look.h"
#include "tools/plot/page.h"

namespace lockstep::plot {
namespace {

constexpr double kSlack = 6;  // a letter, which width_of() may be wrong by

struct Text {
  double left, right, y;
  std::string words;
};

std::vector<Text> texts_of(const std::string& svg) {
  static const std::regex kText(
      "<text x=\"([^\"]*)\" y=\"([^\"]*)\"(?: text-anchor=\"([a-z]*)\")?(?: class=\"(t)\")?>([^<]*)<");
  std::vector<Text> texts;
  for (std::sregex_iterator at(svg.begin(), svg.end(), kText), end; at != end; ++at) {
    const auto& found = *at;
    const double wide = width_of(found[5]) * (found[4].matched ? 1.25 : 1), x = std::stod(found[1]);
    const double before = found[3] == "middle" ? wide / 2 : found[3] == "end" ? wide : 0;
    texts.push_back({x - before, x - before + wide, std::stod(found[2]), found[5]});
  }
  return texts;
}

void expect_readable(const std::string& svg, double width) {
  std::map<double, std::vector<Text>> rows;
  for (const auto& text : texts_of(svg)) {
    EXPECT_GE(text.left, -kSlack) << text.words;
    EXPECT_LE(text.right, width + kSlack) << text.words;
    rows[text.y].push_back(text);
  }
  for (auto& [y, row] : rows) {
    std::ranges::sort(row, {}, &Text::left);
    for (size_t i = 1; i < row.size(); ++i)
      EXPECT_GE(row[i].left, row[i - 1].right - kSlack) << row[i - 1].words << " | " << row[i].words;
  }
}

Chart wordy() {
  return {.title = "A title that is much too long for any phone, and for a desk as well, with a word more",
          .x_label = "message (bytes)",
          .y_label = "what the axis counts, in words that do not end before the picture does, by far",
          .series = {{"reduce_broadcast", {4, 1 << 30}, {1, 1e6}},
                     {"recursive_doubling (model)", {4, 1 << 30}, {1, 1e6}},
                     {"a name of a run, which people make as long as they like it, and then some", {4}, {1}}},
          .log_x = true,
          .log_y = true};
}

TEST(Pictures, TextHasRoomAtEveryWidth) {
  Bars few{"Memory", "MiB", {"gathered 0", "gathered 1", "loss inside 0", "loss inside 1"}, {"MiB"}, {}};
  Bars many{"Phases", "time (s)", {}, {"data", "waiting for communication"}, {}};
  for (int i = 0; i < 64; ++i) many.names.push_back("rank " + std::to_string(i));
  for (const double width : {340.0, kWidth, 1160.0}) {
    SCOPED_TRACE(width);
    expect_readable(svg(wordy(), width), width);
    expect_readable(svg(few, width), width);
    expect_readable(svg(many, width), width);
  }
}

TEST(Pictures, ALongTitleGoesOnInASecondRow) {
  const auto phone =
      svg(Chart{"All-reduce: bus bandwidth over size, the 5 fastest at 8 MiB", "", "", {}}, 340);
  EXPECT_NE(phone.find("at 8 MiB</text>"), std::string::npos) << phone;
}

TEST(Pictures, FewBarsKeepTheirNamesOnAPhone) {
  const auto phone =
      svg(Bars{"A step", "ms", {"dp", "dp, loss inside", "ddp"}, {"ms"}, {{3}, {2}, {1}}}, 340);
  for (const auto* words : {">dp<", ">dp, loss<", ">inside<", ">ddp<"})
    EXPECT_NE(phone.find(words), std::string::npos) << words << "\n" << phone;
}

size_t count_of(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

TEST(Pictures, AreDrawnForAPhoneAndADeskAndALoneOneForTheWholePage) {
  EXPECT_EQ(pictures({}), "");
  const auto draw = drawn(wordy());
  for (const size_t cards : {1, 2, 3}) {
    const auto html = pictures(std::vector<Draw>(cards, draw));
    EXPECT_EQ(count_of(html, "viewBox=\"0 0 340 "), cards);
    EXPECT_EQ(count_of(html, "viewBox=\"0 0 560 "), cards);
    EXPECT_EQ(count_of(html, "viewBox=\"0 0 1160 "), cards % 2);
  }
}

TEST(Pictures, ScrollNowhereAndTablesShowThatTheyDo) {
  const auto html = page("t", {{"one", pictures({drawn(wordy())})}, {"two", table({{"a"}, {"1"}})}});
  EXPECT_EQ(html.find("min-width:475px"), std::string::npos);
  EXPECT_EQ(count_of(html, "overflow-x:auto"), 1U);
  EXPECT_NE(html.find("no-repeat local"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::plot
