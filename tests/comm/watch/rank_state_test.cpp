#include "lockstep/comm/watch/findings.h"

#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

constexpr bool kLeft = true, kTimedOut = true;

TEST(RankState, OfWhoLeftBeforeTheAwaitedCollective) {
  EXPECT_EQ(rank_state(ProcessState::gone, kLeft, 3, 4, false), RankState::left);
  EXPECT_EQ(rank_state(ProcessState::running, kLeft, 3, 0, false), RankState::left);
}

TEST(RankState, OfWhoLeftAfterItIsThatOfItsProcess) {
  EXPECT_EQ(rank_state(ProcessState::running, kLeft, 4, 4, kTimedOut), RankState::good);
  EXPECT_EQ(rank_state(ProcessState::gone, kLeft, 4, 4, false), RankState::died);
}

TEST(RankState, WithoutATimeoutOnlyAnEndedRankIsAtFault) {
  EXPECT_EQ(rank_state(ProcessState::stopped, !kLeft, 3, 4, !kTimedOut), RankState::good);
  EXPECT_EQ(rank_state(ProcessState::running, !kLeft, 3, 4, !kTimedOut), RankState::good);
  EXPECT_EQ(rank_state(ProcessState::gone, !kLeft, 3, 4, !kTimedOut), RankState::died);
}

TEST(RankState, AfterATimeoutWhoIsStoppedOrBehindIsAtFault) {
  EXPECT_EQ(rank_state(ProcessState::stopped, !kLeft, 4, 4, kTimedOut), RankState::stopped);
  EXPECT_EQ(rank_state(ProcessState::running, !kLeft, 3, 4, kTimedOut), RankState::late);
  EXPECT_EQ(rank_state(ProcessState::running, !kLeft, 4, 4, kTimedOut), RankState::good);
}

TEST(RankState, HasItsOwnWords) {
  EXPECT_STREQ(words_for(RankState::left).of_one, "left the group");
  EXPECT_STREQ(words_for(RankState::died).of_one, "has died (its process is gone)");
  EXPECT_STREQ(words_for(RankState::stopped).of_one, "is stopped (SIGSTOP?)");
  EXPECT_STREQ(words_for(RankState::late).of_one, "did not come, it is");
}

TEST(RankState, AnEndedRankIsLostAndALateOneIsNot) {
  for (const auto state : {RankState::left, RankState::died})
    EXPECT_EQ(words_for(state).code, Code::rank_lost);
  for (const auto state : {RankState::stopped, RankState::late})
    EXPECT_EQ(words_for(state).code, Code::rank_late);
}

}  // namespace
}  // namespace lockstep::comm
