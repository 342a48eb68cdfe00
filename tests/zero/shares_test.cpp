#include "lockstep/zero/shares.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace lockstep::zero {
namespace {

int64_t load_of(const std::vector<ParameterPiece>& share) {
  return std::accumulate(share.begin(), share.end(), int64_t{0},
                         [](int64_t sum, const ParameterPiece& piece) { return sum + piece.size(); });
}

// Every element has one owner, and a parameter's pieces lie in the order of the ranks.
void expect_complete(const Shares& shares, const std::vector<Extent>& params) {
  std::vector<int64_t> reached(params.size());
  for (const auto& share : shares) {
    for (const auto& piece : share) {
      EXPECT_EQ(piece.begin, reached[piece.param]);
      EXPECT_TRUE(piece.size() > 0 || params[piece.param].elements == 0);
      reached[piece.param] = piece.end;
    }
  }
  for (size_t i = 0; i < params.size(); ++i) EXPECT_EQ(reached[i], params[i].elements) << i;
}

// SimpleCNN's: one layer is 95 % of it.
const std::vector<Extent> kCnn = {{288, true},    {32, true},  {18432, true}, {64, true},
                                  {401408, true}, {128, true}, {1280, true},  {10, true}};

TEST(Shares, AreEvenWhereOneParameterIsNearlyAll) {
  for (int world = 1; world <= 9; ++world) {
    const auto shares = cut_evenly(kCnn, world);
    expect_complete(shares, kCnn);
    for (const auto& share : shares) EXPECT_NEAR(load_of(share), 421642.0 / world, 65) << world;
  }
}

TEST(Shares, CutOnMultiplesOf64) {
  for (const auto& share : cut_evenly(kCnn, 7)) {
    for (const auto& piece : share) {
      EXPECT_EQ(piece.begin % 64, 0);
      EXPECT_TRUE(piece.end % 64 == 0 || piece.end == kCnn[piece.param].elements);
    }
  }
}

}  // namespace
}  // namespace lockstep::zero
