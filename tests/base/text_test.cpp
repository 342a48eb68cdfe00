#include "lockstep/base/text.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>

#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/program.h"

namespace lockstep {
namespace {

TEST(Text, CountsEdits) {
  EXPECT_EQ(base::edit_distance("", ""), 0u);
  EXPECT_EQ(base::edit_distance("", "abc"), 3u);
  EXPECT_EQ(base::edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(base::edit_distance("epochs", "epcohs"), 1u);
  EXPECT_EQ(base::edit_distance("same", "same"), 0u);
}

TEST(Text, FindsTheNearestName) {
  const std::vector<std::string> names = {"epochs", "eps", "momentum", "find_unused_parameters"};
  EXPECT_EQ(base::nearest("epoch", names), "epochs");
  EXPECT_EQ(base::nearest("EPOCHS", names), "epochs");
  EXPECT_EQ(base::lower_case("@AZ[az\xC3\x84"), "@az[az\xC3\x84");
  EXPECT_EQ(base::nearest("momentun", names), "momentum");
  EXPECT_EQ(base::nearest("find_unused", names), "find_unused_parameters");
  EXPECT_EQ(base::nearest("zebra", names), std::nullopt);
  EXPECT_EQ(base::nearest("", names), std::nullopt);
  EXPECT_EQ(base::nearest("epochs", {}), std::nullopt);
  EXPECT_EQ(base::nearest(std::string(10'000, 'x'), names), std::nullopt);
}

TEST(Text, Joins) {
  EXPECT_EQ(base::join({}, ", "), "");
  EXPECT_EQ(base::join({"a"}, ", "), "a");
  EXPECT_EQ(base::join({"a", "b", "c"}, ", "), "a, b, c");
}

TEST(Text, KnowsUtf8) {
  EXPECT_EQ(base::invalid_utf8(""), std::nullopt);
  EXPECT_EQ(base::invalid_utf8("a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80"), std::nullopt);
  for (const char* bad : {"\x80", "\xFF", "\xC3", "\xC3(", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80",
                          "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xE2\x82", "\xF0\x80\x80\x80"}) {
    EXPECT_EQ(base::invalid_utf8(std::string("ab") + bad), 2u) << base::printable(bad);
  }
}

TEST(Text, IsSafeToPrint) {
  EXPECT_EQ(base::printable("plain"), "plain");
  EXPECT_EQ(base::printable("caf\xC3\xA9"), "caf\xC3\xA9");
  EXPECT_EQ(base::printable("a\x1b[31m\n"), "a\\x1b[31m\\x0a");
  EXPECT_EQ(base::printable("\xFF"), "\\xff");
  EXPECT_EQ(base::printable("abcdef", 3), "abc...");
}

using Words = std::vector<std::string>;

TEST(Words, AreTrimmedOfBlanksAndLineEnds) {
  EXPECT_EQ(base::trimmed(" \ta b\r\n"), "a b");
  EXPECT_EQ(base::trimmed(" \r\n"), "");
  EXPECT_EQ(base::trimmed(""), "");
}

TEST(Words, ArePartedAtEachSign) {
  EXPECT_EQ(base::split("a,,b", ','), (Words{"a", "", "b"}));
  EXPECT_EQ(base::split("a\nb\n", '\n'), (Words{"a", "b"}));
  EXPECT_EQ(base::split("", ','), Words{});
}

TEST(Wrap, BreaksBetweenWordsAlone) {
  EXPECT_EQ(base::wrapped("one two three four five", 20), "one two three four\n  five");
  EXPECT_EQ(base::wrapped("  hint: look at the log of rank 3", 20), "  hint: look at the\n    log of rank 3");
  EXPECT_EQ(base::wrapped("a /very/long/path/that/no/line/holds b", 20),
            "a\n  /very/long/path/that/no/line/holds\n  b");
  EXPECT_EQ(base::wrapped("short\n\nlines\n", 20), "short\n\nlines\n");
  EXPECT_EQ(base::wrapped("ä ö ü ä ö ü ä ö ü ä", 20), "ä ö ü ä ö ü ä ö ü ä");  // letters, not bytes
  EXPECT_EQ(base::wrapped("one two three four five", 0), "one two three four five");
}

TEST(Log, MarksTheLevelByAColour) {
  const auto warning = [](bool colour) {
    ::testing::internal::CaptureStderr();
    log::set_colour(colour);
    log::warning("one two");
    log::set_colour(false);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_EQ(warning(false), "warning: one two\n");
  EXPECT_EQ(warning(true), "\x1b[33mwarning:\x1b[0m one two\n");
}

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

// format(): fmt's syntax for each kind of argument, without fmt in sight.
TEST(Format, WritesNumbersAndTextsAsTheirTypesAre) {
  EXPECT_EQ(format("{} {} {}", 1, int64_t{-2}, std::numeric_limits<uint64_t>::max()),
            "1 -2 18446744073709551615");
  EXPECT_EQ(format("{} {} {}", uint8_t{65}, 'A', true), "65 A true");
  EXPECT_EQ(format("{} {} {}", 0.1, 0.1f, 1e300), "0.1 0.1 1e+300");
  EXPECT_EQ(format("{:.1f}|{:08}|{:>5}|{:<3}|{:x}", 2.25, 42, -7, 'c', 255u), "2.2|00000042|   -7|c  |ff");
  EXPECT_EQ(format("{:.{}f} {:>{}}", 1.0, 3, "a", 4), "1.000    a");
  EXPECT_EQ(format("{}", std::numeric_limits<long long>::min()), "-9223372036854775808");
  const std::string text = "a string";
  const char* none = nullptr;
  EXPECT_EQ(format("{}, {}, {}, {:.3}", std::string_view(text).substr(2), "an array", none, text),
            "string, an array, (null), a s");
  EXPECT_EQ(format("{}", std::string(3, '\0')).size(), 3U);
  EXPECT_EQ(format("{{{1}}} {0}", "a", "b"), "{b} a");
}

TEST(RankList, ReadsAsASentenceAndCountsManyRanks) {
  EXPECT_EQ(base::rank_list({4}), "rank 4");
  EXPECT_EQ(base::rank_list({1, 4}), "ranks 1 and 4");
  EXPECT_EQ(base::rank_list({1, 4, 5}), "ranks 1, 4 and 5");
  EXPECT_EQ(base::rank_list({0, 1, 2, 3, 4, 5, 6, 7, 8}, 1000), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 992 more");
}

}  // namespace
}  // namespace lockstep
