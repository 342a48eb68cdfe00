// One file, and the files that are made of it.
#include "course/workshop/master.h"

#include <gtest/gtest.h>

#include "../temp_folder.h"
#include "lockstep/base/error.h"

namespace lockstep::workshop {
namespace {

const std::string kMaster =
    "//@ title   Sum\n//@ hint    first\n//@ hint    second\n//@ unsolved  is 0\nint f() {\n  //@ todo\n"
    "  return 0;\n  //@ solution\n  return 2;\n  //@ wrong one: is 1\n  return 1;\n  //@ end\n}\n"
    "//@ todo\nint g = 0;\n//@ solution\nint g = 3;\n//@ end\n";

Master master_of(const std::string& text) {
  const test::TempFolder folder;
  return Master::read(folder.write("groups.1.cpp", text));
}

std::string refusal(const std::string& text) {
  try {
    master_of(text);
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
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
