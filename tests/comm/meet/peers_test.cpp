#include "lockstep/comm/meet/peers.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

TEST(Peers, ALineOfTheStoreReadsBack) {
  const Peer peer = {3, 1, 4711, 4026531836, "node-b", "10.0.0.2"};
  const Peer back = unpack_peer(pack(peer));
  EXPECT_EQ(back.rank, 3);
  EXPECT_EQ(back.node, 1);
  EXPECT_EQ(back.pid, 4711);
  EXPECT_EQ(back.pid_space, 4026531836u);
  EXPECT_EQ(back.host, "node-b");
  EXPECT_EQ(back.address, "10.0.0.2");
  EXPECT_EQ(unpack_peer(pack(Peer{0, 0, 1, 0, "alone", ""})).address, "");
  EXPECT_THROW(unpack_peer("3 1 x"), Error);
}

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
