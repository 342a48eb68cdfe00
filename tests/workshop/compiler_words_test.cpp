// What a learner reads of a compiler's complaints.
#include "course/workshop/compile.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lockstep::workshop {
namespace {

const std::string kSource = "/somewhere/my course/exercises/groups.1.cpp";

TEST(CompilerWords, TheFirstErrorComesFirstWithItsLineAndItsCode) {
  const auto text =
      compiler_words(kSource + ": In function 'int main()':\n" + kSource +
                         ":3:5: warning: unused variable 'a'\n    3 |     a\n      |     ^\n" + kSource +
                         ":8:64: error: expected ';'\n    8 |   f()\n      |      ^\n      |      ;\n",
                     kSource);
  EXPECT_EQ(text, "groups.1.cpp:8:64: error: expected ';'\n    8 |   f()\n      |      ^");
}

TEST(CompilerWords, AnErrorInAHeaderNamesTheLearnersLineThatLedThere) {
  const auto text =
      compiler_words("/opt/torch/x.h: In instantiation of 'f<int>':\n" + kSource +
                         ":12:7:   required from here\n/opt/torch/x.h:90:1: error: no type named 'y'\n",
                     kSource);
  EXPECT_EQ(text, "groups.1.cpp:12:7:   required from here\n/opt/torch/x.h:90:1: error: no type named 'y'");
}

TEST(CompilerWords, ACallThatMatchesNothingIsShownTheFirstThatItCouldMean) {
  const auto text = compiler_words(
      kSource + ":3:5: error: no matching function for call to 'f(int)'\n    3 |   f(1)\n      |   ~^~~\n" +
          "/opt/x.h:9:6: note: candidate: 'void f(std::string)'\n    9 | void f(\n" +
          "/opt/x.h:12:6: note: candidate: 'void f(std::string, int)'\n",
      kSource);
  EXPECT_EQ(
      text,
      "groups.1.cpp:3:5: error: no matching function for call to 'f(int)'\n    3 |   f(1)\n      |   ~^~~\n"
      "   candidate: 'void f(std::string)'");
}

TEST(CompilerWords, ANovelIsCutToADozenShortLines) {
  std::string novel;
  for (int i = 0; i < 100; ++i) novel += kSource + ":1:1: error: " + std::string(5000, 'x') + "\n";
  const auto text = compiler_words(novel, kSource);
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 11);
  EXPECT_LT(text.size(), 12u * 170);
}

TEST(CompilerWords, WhatTheLinkerMissesIsAnError) {
  const auto text =
      compiler_words("/usr/bin/ld: /tmp/x.o: in function `main':\n" + kSource +
                         ":(.text+0x9): undefined reference to `f()'\ncollect2: error: ld returned 1\n",
                     kSource);
  EXPECT_TRUE(text.starts_with("groups.1.cpp:(.text+0x9): undefined reference to `f()'")) << text;
}

TEST(CompilerWords, WhatIsInNoKnownFormIsShownAsItIs) {
  EXPECT_EQ(compiler_words("no licence\nfor this compiler\n", kSource), "no licence\nfor this compiler");
}

}  // namespace
}  // namespace lockstep::workshop
