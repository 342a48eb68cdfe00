// Texts that a learner reads: what the compiler rejects, and what the ranks printed.
#include <gtest/gtest.h>

#include <algorithm>

#include "course/workshop/check.h"
#include "course/workshop/compile.h"

namespace lockstep::workshop {
namespace {

const std::string kSource = "/somewhere/my course/exercises/groups.1.cpp";

TEST(CompilerErrors, TheFirstErrorComesFirstWithItsCode) {
  EXPECT_EQ(
      compiler_errors(kSource + ": In function 'int main()':\n" + kSource +
                          ":3:5: warning: unused variable 'a'\n    3 |     a\n      |     ^\n" + kSource +
                          ":8:64: error: expected ';'\n    8 |   f()\n      |      ^\n      |      ;\n",
                      kSource),
      "groups.1.cpp:8:64: error: expected ';'\n    8 |   f()\n      |      ^");
}

TEST(CompilerErrors, AnErrorInAHeaderNamesTheLearnersLine) {
  EXPECT_EQ(
      compiler_errors("/opt/torch/x.h: In instantiation of 'f<int>':\n" + kSource +
                          ":12:7:   required from here\n/opt/torch/x.h:90:1: error: no type named 'y'\n",
                      kSource),
      "groups.1.cpp:12:7:   required from here\n/opt/torch/x.h:90:1: error: no type named 'y'");
}

TEST(CompilerErrors, ALongListIsCut) {
  std::string many;
  for (int i = 0; i < 100; ++i) many += kSource + ":1:1: error: " + std::string(5000, 'x') + "\n";
  const auto text = compiler_errors(many, kSource);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 11);
  EXPECT_LT(text.size(), 12u * 170);
}

TEST(CompilerErrors, UndefinedReferencesCountAndUnknownOutputIsShownAsItIs) {
  EXPECT_TRUE(
      compiler_errors("/usr/bin/ld: /tmp/x.o: in function `main':\n" + kSource +
                          ":(.text+0x9): undefined reference to `f()'\ncollect2: error: ld returned 1\n",
                      kSource)
          .starts_with("groups.1.cpp:(.text+0x9): undefined reference to `f()'"));
  EXPECT_EQ(compiler_errors("no licence\nfor this compiler\n", kSource), "no licence\nfor this compiler");
}

TEST(PrintedWords, ShowTheLastLinesOfAFewRanksAndWhereAllIs) {
  EXPECT_EQ(printed_words({"a\nb\n", "", "c"}, "", "build/run/x.1"),
            "rank 0 printed: a\nrank 0 printed: b\nrank 2 printed: c\n(all of it: build/run/x.1/rank-N.log)");
  EXPECT_EQ(printed_words({"", "\n"}, "", "build"), "");
  std::string flood;
  for (int i = 0; i < 100000; ++i) flood += std::to_string(i) + "\n";
  const auto words = printed_words(std::vector<std::string>(64, flood), "", "build");
  EXPECT_EQ(std::count(words.begin(), words.end(), '\n'), 4 * 5);
  EXPECT_NE(words.find("rank 0 printed: 99999\n"), std::string::npos);
}

TEST(PrintedWords, LeaveOutWhatIsSaidAlreadyAndLockstepsOwnError) {
  EXPECT_EQ(printed_words({"again\nmine\n[rank 0] error: lost\n  --> here\n"}, "left: again", "build"),
            "rank 0 printed: mine\n(all of it: build/rank-N.log)");
}

}  // namespace
}  // namespace lockstep::workshop
