// A page is one file, and whatever a run is called cannot change it.
#include "tools/plot/page.h"

#include <gtest/gtest.h>

#include "tools/plot/chart.h"

namespace lockstep::plot {
namespace {

TEST(Escaped, LeavesNoMarkupAndNoControlLetters) {
  EXPECT_EQ(escaped("<a href='x'>&\"</a>"), "&lt;a href=&#39;x&#39;&gt;&amp;&quot;&lt;/a&gt;");
  EXPECT_EQ(escaped("grün"), "grün");
  EXPECT_EQ(escaped("\x1b[1m").find('\x1b'), std::string::npos);
  EXPECT_EQ(escaped("\xff").find('\xff'), std::string::npos);
}

TEST(Table, HasAHeadAndSafeCells) {
  const auto html = table({{"key", "<b>"}, {"loss", "0.25"}, {"name", "<i>"}});
  EXPECT_NE(html.find("<th>&lt;b&gt;</th>"), std::string::npos) << html;
  EXPECT_NE(html.find("<td>&lt;i&gt;</td>"), std::string::npos) << html;
  EXPECT_EQ(table({}), "");
}

TEST(Table, AColumnOfNumbersStandsRightWithItsHead) {
  const auto html = table({{"run", "loss", "value"}, {"a", "0.25", "0.5"}, {"b", "", "x"}, {"c", "-", ""}});
  EXPECT_NE(html.find("<th>run</th><th class=\"n\">loss</th><th>value</th>"), std::string::npos) << html;
  EXPECT_NE(html.find("<td>a</td><td class=\"n\">0.25</td><td>0.5</td>"), std::string::npos) << html;
}

TEST(Page, FetchesNothingAndRunsNothing) {
  const auto html = page("<script>", {{"one", svg(Chart{})}, {"two", ""}, {"three & four", ""}});
  EXPECT_EQ(html.find("<script"), std::string::npos);
  EXPECT_EQ(html.find("src="), std::string::npos);
  EXPECT_EQ(html.find("@import"), std::string::npos);
  EXPECT_NE(html.find("default-src 'none'"), std::string::npos);
  EXPECT_NE(html.find("href=\"#s2\">three &amp; four</a>"), std::string::npos);
  EXPECT_NE(html.find("prefers-color-scheme:dark"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::plot
