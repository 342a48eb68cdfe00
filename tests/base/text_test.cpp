#include "lockstep/base/text.h"

#include <gtest/gtest.h>

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

TEST(RankList, ReadsAsASentenceAndCountsManyRanks) {
  EXPECT_EQ(base::rank_list({4}), "rank 4");
  EXPECT_EQ(base::rank_list({1, 4}), "ranks 1 and 4");
  EXPECT_EQ(base::rank_list({1, 4, 5}), "ranks 1, 4 and 5");
  EXPECT_EQ(base::rank_list({0, 1, 2, 3, 4, 5, 6, 7, 8}, 1000), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 992 more");
}

}  // namespace
}  // namespace lockstep
