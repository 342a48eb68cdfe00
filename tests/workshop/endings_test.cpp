// What a learner is told of ranks that did not end well.
#include "course/workshop/judge.h"

#include <gtest/gtest.h>

#include <csignal>

#include "lockstep/base/json.h"

namespace lockstep::workshop {
namespace {

Ending left(int status, const std::string& printed = {}) {
  return {.why = Why::left, .status = status, .printed = printed};
}

Ending crashed(int signal, const std::string& printed = {}) {
  return {.why = Why::signal, .status = signal, .printed = printed};
}

Ending stopped(bool busy) {
  return {.why = Why::too_long, .was_busy = busy, .seconds = 40};
}

const std::string kLost =
    "error: all-reduce (collective 2) failed: rank 1 (host n1, pid 24) left the group after collective 1\n"
    "  where: rank 0 on host n1; the backend said: [pair.cc:547] Connection closed by peer\n"
    "  to do: look in that rank's log\n";

Ending with(Ending ending, const Fault& error) {
  ending.facts = base::as_line(base::to_json(error));
  return ending;
}

Fault lost_rank_1() {
  return {.code = Code::rank_lost,
          .ranks = {1},
          .what = "all-reduce (collective 2) failed: rank 1 (host n1, pid 24) left the group",
          .met_in = {.call = "all-reduce", .number = 2},
          .seen = {{.rank = 1, .number = 1, .state = "left the group after collective 1"}}};
}

// one that met what another did, as LOCKSTEP_ERRORS says it
Ending lost() {
  return with(left(1, kLost), lost_rank_1());
}

std::string told(std::vector<Ending> endings) {
  Run run;
  for (auto& ending : endings) run.ranks.emplace_back(static_cast<int>(run.ranks.size()), std::move(ending));
  try {
    require_good_end(run, {}, "build/run/x.1");
  } catch (const NotYet& word) {
    return std::string(word.what()) + "\n" + word.think();
  }
  return "";
}

TEST(Endings, NothingIsToldWhereAllEndWell) {
  EXPECT_EQ(told({left(0, "what it printed"), left(0)}), "");
}

TEST(Endings, ARankThatWaitedSaysWhereAndForWhomInOneLine) {
  const auto text = told({lost(), left(0)});
  EXPECT_TRUE(
      text.starts_with("rank 0 waited in all-reduce (collective 2), and in vain: rank 1 left the group "
                       "after collective 1\n"))
      << text;
  EXPECT_NE(text.find("rank-0.log"), std::string::npos);
  EXPECT_EQ(text.find("pair.cc"), std::string::npos);
  EXPECT_EQ(text.find("pid"), std::string::npos);
}

TEST(Endings, ACollectiveThatTimedOutSaysHowLongItWaited) {
  const Fault error{.code = Code::rank_late,
                    .met_in = {.call = "broadcast", .number = 4, .waited = 8},
                    .seen = {{.rank = 1, .state = "did not come, it is at collective 3"},
                             {.rank = 0, .state = "is stopped"}}};
  EXPECT_EQ(plain_words(2, error),
            "rank 2 waited 8 s in broadcast (collective 4), and in vain: rank 1 did not come, it is at "
            "collective 3; rank 0 is stopped");
}

TEST(Endings, WhereInGlooAConnectionBrokeIsLeftOut) {
  auto error = lost_rank_1();
  error.seen[0].state =
      "met an error: [/gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:44171";
  EXPECT_EQ(plain_words(1, error),
            "rank 1 waited in all-reduce (collective 2), and in vain: rank 1 met an error: Connection closed "
            "by peer");
}

TEST(Endings, ACollectiveThatNobodyIsSeenToHaveSpoiledIsToldSo) {
  auto error = lost_rank_1();
  error.seen = {{.rank = 0, .call = "all-reduce", .number = 2},
                {.rank = 1, .call = "all-reduce", .number = 2}};
  const std::string waited = "rank 0 waited in all-reduce (collective 2), and in vain: ";
  EXPECT_EQ(plain_words(0, error), waited + "every rank came, and none has an answer");
  error.seen.clear();
  EXPECT_EQ(plain_words(0, error), waited + "nobody is seen at fault");
  EXPECT_EQ(plain_words(0, Fault{.what = "bad"}), "");
}

TEST(Endings, TheRankThatFailedByItselfSpeaksAndNotTheOneThatLostIt) {
  const auto text = told({lost(), left(1, "error: bad\n")});
  EXPECT_TRUE(text.starts_with("rank 1 left with an error:\nerror: bad")) << text;
}

TEST(Endings, TheRankThatCrashedSpeaksFirst) {
  const auto text = told({lost(), crashed(SIGFPE)});
  EXPECT_TRUE(text.starts_with("rank 1 crashed: it divided a whole number by zero")) << text;
}

TEST(Endings, ARankThatComputesForEverIsTheCauseOfOneThatTimedOut) {
  EXPECT_TRUE(told({lost(), stopped(true)}).starts_with("rank 1 still computed after 40 s"));
}

TEST(Endings, RanksThatWaitForEachOtherAreNamedTogether) {
  EXPECT_TRUE(told({stopped(false), stopped(false)}).starts_with("ranks 0 and 1 still waited after 40 s"));
}

TEST(Endings, RanksInDifferentCallsAreToldTheirCallsAndNotThatOneNeverCame) {
  const auto apart = [](const std::string& second) {
    return Fault{.code = Code::calls_differ,
                 .met_in = {.call = "all-reduce", .number = 1, .waited = 3},
                 .seen = {{.rank = 0, .call = "all-reduce", .number = 1},
                          {.rank = 1, .call = second, .number = 1},
                          {.rank = 2, .call = "all-reduce", .number = 1}}};
  };
  const auto words = "the ranks are in two different calls: ranks 0 and 2 in all-reduce, rank 1 in barrier";
  EXPECT_EQ(different_calls(apart("barrier")), words);
  EXPECT_TRUE(told({with(left(1), apart("barrier")), with(left(1), apart("barrier"))}).starts_with(words));
  EXPECT_EQ(different_calls(apart("all-reduce")), "");
  EXPECT_EQ(different_calls(lost_rank_1()), "");
}

TEST(Endings, SeveralRanksWereStoppedAndOneWas) {
  const auto loud = [] { return Ending{.why = Why::too_much_output}; };
  EXPECT_TRUE(told({loud(), loud()}).starts_with("ranks 0 and 1 printed without end, and were stopped"));
  EXPECT_TRUE(told({loud(), left(0)}).starts_with("rank 0 printed without end, and was stopped"));
}

TEST(Endings, MemoryThatIsNotToBeHadIsCalledSo) {
  const auto text = told({lost(), left(1, "error: there is not enough memory (std::bad_alloc)\n")});
  EXPECT_TRUE(text.starts_with("rank 1 asked for more memory than 4 GB")) << text;
  EXPECT_TRUE(told({crashed(SIGABRT, "terminate called after throwing 'std::bad_alloc'")})
                  .starts_with("rank 0 asked for more memory than 4 GB"));
}

TEST(Endings, AFileWithoutEndIsCalledSo) {
  EXPECT_TRUE(told({crashed(SIGXFSZ), left(0)}).starts_with("rank 0 wrote a file of more than 256 MB"));
}

TEST(Endings, AProgramThatSaysNothingIsNotShownAnEmptyError) {
  EXPECT_TRUE(told({left(3)}).starts_with("rank 0 left with status 3, and said nothing"));
}

TEST(Endings, WhatATerminalWouldObeyIsNotPassedOn) {
  EXPECT_EQ(told({left(1, "\x1b[2Jgone")}).find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace lockstep::workshop
