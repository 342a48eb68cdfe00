// Texts that a learner reads: what the compiler rejects, and what the ranks printed.
#include <gtest/gtest.h>

#include <algorithm>

#include "../refusal.h"
#include "../temp_folder.h"
#include "course/workshop/check.h"
#include "course/workshop/compile.h"
#include "course/workshop/master.h"

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

// One file, and the files that are made of it.

const std::string kMaster =
    "//@ title   Sum\n//@ hint    first\n//@ hint    second\n//@ unsolved  is 0\nint f() {\n  //@ todo\n"
    "  return 0;\n  //@ solution\n  return 2;\n  //@ wrong one: is 1\n  return 1;\n  //@ end\n}\n"
    "//@ todo\nint g = 0;\n//@ solution\nint g = 3;\n//@ end\n";

Master master_of(const std::string& text) {
  const test::TempFolder folder;
  return Master::read(folder.write("groups.1.cpp", text));
}

std::string refusal(const std::string& text) {
  return test::error_from([&] { master_of(text); }).what();
}

TEST(Master, GivesTheTaskTheSolutionAndAWrongAnswerWithoutItsMarks) {
  const auto master = master_of(kMaster);
  EXPECT_EQ(master.name(), "groups.1");
  EXPECT_EQ(master.hints().size(), 2u);
  EXPECT_EQ(master.task(), "int f() {\n  return 0;\n}\nint g = 0;\n");
  EXPECT_EQ(master.solution(), "int f() {\n  return 2;\n}\nint g = 3;\n");
}

TEST(Master, SolvesTheHolesToWhichAWrongAnswerWasNotGiven) {
  EXPECT_EQ(master_of(kMaster).answer("one"), "int f() {\n  return 1;\n}\nint g = 3;\n");
}

TEST(Master, RefusesMarksThatMakeNoSense) {
  EXPECT_EQ(refusal("//@ title T\n//@ todo\n//@ solution\n"), "the last hole has no //@ end");
  EXPECT_EQ(refusal("//@ todo\n//@ solution\nint i;\n//@ end\n"), "there is no //@ title");
  EXPECT_EQ(refusal("//@ title T\n"), "there is no //@ todo: nothing is left to do");
  EXPECT_EQ(refusal("//@ title T\n//@ todo\n//@ end\n"), "the hole has no //@ solution");
  EXPECT_EQ(refusal("//@ title T\n//@ todo\n//@ todo\n"), "a hole inside a hole");
  EXPECT_EQ(refusal("//@ title T\n//@ solution\n"), "the mark 'solution' is not known here");
}

}  // namespace
}  // namespace lockstep::workshop
