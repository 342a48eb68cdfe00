#include "trainer/config/load.h"

#include <gtest/gtest.h>

#include <map>

#include "config/support.h"
#include "trainer/config/numbers.h"

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
  const std::pair<const char*, const char*> rows[] = {{"runs", "runs"},
                                                      {"/scratch/${JOB}/x", "/scratch/17.pbs/x"},
                                                      {"${JOB}${JOB}", "17.pbs17.pbs"},
                                                      {"${SCRATCH:-runs}", "runs"},
                                                      {"${EMPTY:-runs}", "runs"},
                                                      {"${JOB:-runs}", "17.pbs"},
                                                      {"${SCRATCH:-}", ""},
                                                      {"${EMPTY}", ""},
                                                      {"cost$$5", "cost$5"},
                                                      {"$${JOB}", "${JOB}"}};
  for (const auto& [text, wanted] : rows) EXPECT_EQ(expanded(text), wanted) << text;
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

using namespace std::chrono_literals;

TEST(Numbers, ReadsWholeNumbersInOneWayOnly) {
  EXPECT_EQ(parse_int("0"), 0);
  EXPECT_EQ(parse_int("-12"), -12);
  EXPECT_EQ(parse_int("+12"), 12);
  EXPECT_EQ(parse_int("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(parse_int("-9223372036854775808"), INT64_MIN);
  for (const char* text :
       {"", "-", "+", "+-1", "--1", "1.0", "1e3", "0x10", "0o10", "0b1", "010", "-010", "1_000", "1 ", " 1",
        "9223372036854775808", "99999999999999999999999", "ten", "1a"}) {
    EXPECT_EQ(parse_int(text), std::nullopt) << text;
  }
}

TEST(Numbers, ReadsFiniteNumbers) {
  const std::pair<const char*, double> rows[] = {{"0.1", 0.1}, {"-1e-8", -1e-8}, {"1.0e-8", 1e-8},
                                                 {"+.5", 0.5}, {"5.", 5},        {"7", 7}};
  for (const auto& [text, wanted] : rows) EXPECT_EQ(parse_number(text), wanted) << text;
  for (const char* text : {"", ".", "-", "e5", "1e", "inf", ".inf", "nan", ".nan", "-.inf", "1e400", "1e-400",
                           "0x1p3", "0,1", "1_0", "1.2.3", "1e5.5"}) {
    EXPECT_EQ(parse_number(text), std::nullopt) << text;
  }
}

TEST(Numbers, ReadsDurations) {
  const std::map<std::string, std::chrono::milliseconds> good = {
      {"60s", 60s},     {"10m", 10min},  {"1h30m", 90min},   {"1h30m5s250ms", 5'405'250ms},
      {"250ms", 250ms}, {"2d", 48h},     {"90", 90s},        {"1.5", 1500ms},
      {"0", 0ms},       {"0.5h", 30min}, {"1.5m", 90'000ms}, {"3650d", 24h * 3650}};
  for (const auto& [text, value] : good) EXPECT_EQ(parse_duration(text), value) << text;
  for (const char* text : {"", "s", "5x", "5 s", "-5s", "-1", "5m5m", "5s1m", "1h-5m", "m5", "5sm", "5hm",
                           "1e999s", "1.2.3s", "3651d", "99999999999999999999d", "inf", "5s "}) {
    EXPECT_EQ(parse_duration(text), std::nullopt) << text;
  }
}

TEST(Numbers, WritesDurationsThatReadBack) {
  for (const auto value :
       {0ms, 1ms, 999ms, 1000ms, 59'000ms, 60'000ms, 90'000ms, 600'000ms, 3'600'000ms, 86'400'001ms}) {
    EXPECT_EQ(parse_duration(duration_text(value)), value) << duration_text(value);
  }
  EXPECT_EQ(duration_text(60s), "60s");
  EXPECT_EQ(duration_text(10min), "10m");
}

}  // namespace
}  // namespace lockstep::config
