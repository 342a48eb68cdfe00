#include "lockstep/comm/meet/peers.h"

#include <gtest/gtest.h>

namespace lockstep::comm {
namespace {

TEST(Peers, RanksReadAsASentence) {
  EXPECT_EQ(rank_list({4}), "rank 4");
  EXPECT_EQ(rank_list({1, 4}), "ranks 1 and 4");
  EXPECT_EQ(rank_list({1, 4, 5}), "ranks 1, 4 and 5");
}

TEST(Peers, AThousandRanksAreCounted) {
  std::vector<int> many;
  for (int rank = 0; rank < 1000; ++rank) many.push_back(rank);
  EXPECT_EQ(rank_list(many), "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 992 more");
}

}  // namespace
}  // namespace lockstep::comm
