#include "lockstep/launch/process/terminal.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Terminal, KnowsWhenMpirunRewritesLines) {
  for (const char* word : {"--tag-output", "-tag-output", "-timestamp-output", "--output-filename", "-xterm",
                           "--output", "-outfile-pattern", "-errfile-pattern", "-prepend-rank", "-l"})
    EXPECT_TRUE(launch::rewrites_output({"mpirun", "-n", "2", word, "x", "lockstep"})) << word;
  EXPECT_TRUE(launch::rewrites_output({"mpirun", "--mca", "orte_tag_output", "1", "lockstep"}));
  EXPECT_FALSE(launch::rewrites_output({"mpirun", "-q", "-n", "2", "lockstep", "train", "output.yaml"}));
  EXPECT_FALSE(launch::rewrites_output({"mpirun", "-n", "2", "lockstep", "train", "--set=run.dir=output"}));
}

TEST(Terminal, AFileIsNone) {
  EXPECT_FALSE(launch::terminal_behind(-1));
}

}  // namespace
}  // namespace lockstep
