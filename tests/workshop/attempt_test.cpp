// What a check sees of the ranks of a program, and what the learner is told of ranks that did not end well.
#include "course/workshop/attempt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>

#include "lockstep/base/json.h"

namespace lockstep::workshop {
namespace {

RankRun rank_with(const std::string& facts) {
  return {1, {.facts = facts}};
}

TEST(Facts, TheLastOfANameCountsAndWhatIsNoFactIsPassedOver) {
  const auto rank =
      rank_with("[]\n7\n{\"name\":3}\n\xff\xfe\n{\"name\":\"mean\",\"numbers\":[1]}\n" +
                std::string(5000, '[') + "\n{\"name\":\"mean\",\"numbers\":[2.5]}\n{\"name\":\"mean");
  EXPECT_EQ(rank.number("mean"), 2.5);
  EXPECT_EQ(rank.rows("mean"), (Rows{{1}, {2.5}}));
}

TEST(Facts, WhatWasNotShownIsNotYet) {
  EXPECT_THROW(rank_with("").number("mean"), CheckFailure);
  EXPECT_THROW(rank_with("{\"name\":\"mean\",\"numbers\":\"five\"}\n").number("mean"), CheckFailure);
  EXPECT_THROW(rank_with("{\"name\":\"mean\",\"numbers\":[1]}\n").column("mean", 2), CheckFailure);
}

TEST(Facts, NotANumberIsNearNothing) {
  const auto rank = rank_with("{\"name\":\"row\",\"numbers\":[\"nan\",\"inf\"]}\n");
  EXPECT_TRUE(std::isnan(rank.numbers("row")[0]) && std::isinf(rank.numbers("row")[1]));
  EXPECT_FALSE(near(std::nan(""), std::nan("")));
  EXPECT_THROW(rank.expect_numbers("row", {0, 0}), CheckFailure);
}

TEST(Facts, ALongRowIsShownByItsBeginningAndItsEnd) {
  Row row(100);
  for (size_t i = 0; i < row.size(); ++i) row[i] = static_cast<double>(i);
  EXPECT_EQ(shown(row), "0 1 2 3 4 5 6 7 8 9 ... 99");
  EXPECT_EQ(shown(Row{1, 2.5}), "1 2.5");
}

// --- endings

Ending left(int status, const std::string& printed = {}) {
  return {.why = Why::left, .status = status, .printed = printed};
}

Ending crashed(int signal, const std::string& printed = {}) {
  return {.why = Why::signal, .status = signal, .printed = printed};
}

Ending stopped(bool busy) {
  return {.why = Why::too_long, .was_busy = busy, .seconds = 40};
}

Ending failed_with(const Fault& error) {
  auto ending = left(1, "error: it failed\n");
  ending.facts = base::as_line(base::to_json(error));
  return ending;
}

// It lost rank 1, as LOCKSTEP_ERRORS reports it.
Ending lost() {
  return failed_with(
      {.code = Code::rank_lost,
       .ranks = {1},
       .met_in = {.call = "all-reduce", .number = 2},
       .seen = {
           {.rank = 1, .state = "left: [/gloo/pair.cc:547] Connection closed by peer [127.0.0.1]:44171"}}});
}

Ending in_call(const std::string& call_of_rank_1) {
  return failed_with({.code = Code::calls_differ,
                      .what = "the sizes differ",
                      .met_in = {.call = "all-reduce", .number = 1},
                      .seen = {{.rank = 0, .call = "all-reduce"}, {.rank = 1, .call = call_of_rank_1}}});
}

std::string told(std::vector<Ending> endings) {
  Run run;
  for (auto& ending : endings) run.add(std::move(ending), 2);
  try {
    require_good_end(run, {}, "build/run/x.1");
  } catch (const CheckFailure& word) {
    return std::string(word.what()) + "\n" + word.think();
  }
  return "";
}

TEST(Endings, TheCauseIsToldAndNotWhatFollowsFromIt) {
  const std::pair<std::string, std::vector<Ending>> cases[] = {
      {"rank 0 waited in all-reduce (collective 2) without a result: rank 1 left: Connection closed by "
       "peer\n",
       {lost(), left(0)}},
      {"rank 1 exited with an error:\nerror: bad", {lost(), left(1, "error: bad\n")}},
      {"rank 1 exited with status 3 and no message", {lost(), left(3)}},
      {"rank 1 crashed: it divided an integer by zero", {lost(), crashed(SIGFPE)}},
      {"rank 1 did not finish computing within 40 s", {lost(), stopped(true)}},
      {"ranks 0 and 1 waited for more than 40 s", {stopped(false), stopped(false)}},
      {"ranks 0 and 1 printed endlessly", {{.why = Why::too_much_output}, {.why = Why::too_much_output}}},
      {"rank 1 asked for more memory than 2 GB", {lost(), left(1, "error: no memory (std::bad_alloc)\n")}},
      {"rank 0 asked for more memory",
       {crashed(SIGABRT, "terminate called after 'std::bad_alloc'"), left(0)}},
      {"the ranks are in two different calls: rank 0 in all-reduce, rank 1 in barrier",
       {in_call("barrier"), in_call("barrier")}},
      {"the sizes differ\n", {in_call("all-reduce"), in_call("all-reduce")}},
  };
  EXPECT_EQ(told({left(0, "what it printed"), left(0)}), "");
  for (const auto& [words, endings] : cases) EXPECT_TRUE(told(endings).starts_with(words)) << told(endings);
  EXPECT_NE(told({lost(), left(0)}).find("rank-0.log"), std::string::npos);
}

TEST(Endings, EscapeCodesDoNotReachTheTerminal) {
  EXPECT_EQ(told({left(1, "\x1b[2Jgone")}).find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace lockstep::workshop
