// A page is one file that no text can change, and the same as text for a terminal.
#include "tools/report/page.h"

#include <gtest/gtest.h>

#include <limits>

namespace lockstep::report {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

size_t count(const std::string& text, const std::string& what) {
  size_t found = 0;
  for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

TEST(Numbers, HaveThreeDigitsAndAUnit) {
  EXPECT_EQ(bytes_text(4), "4 B");
  EXPECT_EQ(bytes_text(1.5 * 1024), "1.5 KiB");
  EXPECT_EQ(bytes_text(kNan), "–");
  EXPECT_EQ(seconds_text(2e-6), "2 us");
  EXPECT_EQ(seconds_text(0.0123), "12.3 ms");
  EXPECT_EQ(seconds_text(24.1), "24.1 s") << "not 2.41e+04 ms";
  EXPECT_EQ(seconds_text(2000), "33.3 min");
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

}  // namespace
}  // namespace lockstep::report
