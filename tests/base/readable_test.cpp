#include "lockstep/base/text.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Readable, LettersLinesAndTabsStay) {
  for (const char* text : {"plain", "caf\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80", "two\nlines\n", "a\tb", ""})
    EXPECT_EQ(base::readable(text), text);
}

TEST(Readable, NoTerminalObeysIt) {
  EXPECT_EQ(base::readable("a\x1b]0;title\x07z"), "a\\x1b]0;title\\x07z");
  EXPECT_EQ(base::readable("over\rwritten\x7f"), "over\\x0dwritten\\x7f");
  EXPECT_EQ(base::readable("\xC2\x9B\x33m \xC2\xA0"), "\\xc2\\x9b3m \xC2\xA0");  // CSI as one letter
  EXPECT_EQ(base::readable("\xE2\x80\xAEtxt.exe"), "\\xe2\\x80\\xaetxt.exe");    // from right to left
  EXPECT_EQ(base::readable("\xE2\x81\xA6"), "\\xe2\\x81\\xa6");
  EXPECT_EQ(base::readable(std::string("a\0b", 3)), "a\\x00b");
}

TEST(Readable, OneBadByteLeavesTheRestReadable) {
  EXPECT_EQ(base::readable("caf\xC3\xA9 \xFF caf\xC3\xA9 \xC3"), "caf\xC3\xA9 \\xff caf\xC3\xA9 \\xc3");
  EXPECT_EQ(base::readable("\xED\xA0\x80"), "\\xed\\xa0\\x80");
}

TEST(Readable, AVeryLongLineIsShortened) {
  const std::string text = base::readable(std::string(3'000'000, 'x') + "\nnext");
  EXPECT_LT(text.size(), 2100u);
  EXPECT_NE(text.find("(3000000 bytes)"), std::string::npos);
  EXPECT_TRUE(text.ends_with("x\nnext"));
  std::string wide;
  for (int i = 0; i < 1000; ++i) wide += "\xE2\x82\xAC";
  EXPECT_EQ(base::readable(wide).find("\\x"), std::string::npos);  // cut between letters
}

}  // namespace
}  // namespace lockstep
