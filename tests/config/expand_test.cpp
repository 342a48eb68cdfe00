#include "trainer/config/load.h"

#include "config/support.h"

namespace lockstep::config {
namespace {

const std::map<std::string, std::string> kEnvironment = {{"JOB", "17.pbs"},
                                                         {"EMPTY", ""},
                                                         {"NESTED", "${JOB}"},
                                                         {"EVIL", "$(touch /tmp/x); `id`"},
                                                         {"BAD", "a\nb"}};

std::string expanded(const std::string& text) {
  return expand(text, kEnvironment, "run.dir", "c.yaml:1:1");
}

std::string nested(int depth) {
  std::string text = "x";
  for (int i = 0; i < depth; ++i) text = "${NONE:-" + text + "}";
  return text;
}

TEST(Expand, ADefaultInADefaultHasAnEnd) {
  EXPECT_EQ(expanded(nested(20)), "x");
  EXPECT_THROW(expanded(nested(21)), InputError);
}

TEST(Expand, PutsVariablesIn) {
  EXPECT_EQ(expanded("runs"), "runs");
  EXPECT_EQ(expanded("/scratch/${JOB}/x"), "/scratch/17.pbs/x");
  EXPECT_EQ(expanded("${JOB}${JOB}"), "17.pbs17.pbs");
  EXPECT_EQ(expanded("${SCRATCH:-runs}"), "runs");
  EXPECT_EQ(expanded("${EMPTY:-runs}"), "runs");
  EXPECT_EQ(expanded("${JOB:-runs}"), "17.pbs");
  EXPECT_EQ(expanded("${SCRATCH:-}"), "");
  EXPECT_EQ(expanded("${EMPTY}"), "");
  EXPECT_EQ(expanded("cost$$5"), "cost$5");
  EXPECT_EQ(expanded("$${JOB}"), "${JOB}");
}

TEST(Expand, ADefaultMayHoldReferencesOfItsOwn) {
  EXPECT_EQ(expanded("${NOPE:-${JOB}}/x"), "17.pbs/x");
  EXPECT_EQ(expanded("${NOPE:-${EMPTY:-/tmp}/${JOB}}/x"), "/tmp/17.pbs/x");
  EXPECT_EQ(expanded("${JOB:-${NOPE}}"), "17.pbs");  // not looked at
  EXPECT_EQ(expanded("${NOPE:-a$$b}"), "a$b");
  for (const char* text : {"${NOPE:-${NADA}}", "${NOPE:-${JOB}", "${NOPE:-$JOB}", "${NOPE:-${1}}"})
    EXPECT_THROW(expanded(text), InputError) << text;
}

TEST(Expand, NeverExpandsTwiceAndNeverAsksAShell) {
  EXPECT_EQ(expanded("${NESTED}"), "${JOB}");
  EXPECT_EQ(expanded("${EVIL}"), "$(touch /tmp/x); `id`");
}

TEST(Expand, RefusesWhatItDoesNotKnow) {
  for (const char* text : {"$JOB", "${JOB", "${}", "${1A}", "${A B}", "$(id)", "$", "a$", "${JOB:=x}",
                           "${JOB-x}", "${BAD}", "${NOPE}", "${:-x}"}) {
    EXPECT_THROW(expanded(text), InputError) << text;
  }
}

TEST(Expand, SaysWhichVariableIsMissing) {
  try {
    expanded("x/${NOPE}");
    FAIL();
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "run.dir needs the environment variable NOPE, which is not set");
    EXPECT_EQ(error.where(), "c.yaml:1:1");
    EXPECT_EQ(error.hint(), "set it, or write ${NOPE:-otherwise}");
  }
}

}  // namespace
}  // namespace lockstep::config
