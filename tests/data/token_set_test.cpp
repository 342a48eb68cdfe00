#include "lockstep/data/token_set.h"

#include <ATen/ATen.h>

#include <set>

#include "lockstep/data/sampler.h"
#include "peer.h"

namespace lockstep {
namespace {

// Samples of these lengths: token t of sample s is 100 s + t; the first text is half of each.
Tokens tokens_of(const std::vector<int64_t>& lengths, int64_t first = 0) {
  std::vector<int32_t> ids, seconds;
  std::vector<int64_t> starts{0}, targets;
  for (size_t s = 0; s < lengths.size(); ++s) {
    for (int64_t t = 0; t < lengths[s]; ++t) ids.push_back(static_cast<int32_t>(100 * (first + s) + t));
    starts.push_back(static_cast<int64_t>(ids.size()));
    seconds.push_back(static_cast<int32_t>(lengths[s] / 2));
    targets.push_back(first + static_cast<int64_t>(s));
  }
  return {at::tensor(ids, at::kInt), at::tensor(starts, at::kLong), at::tensor(seconds, at::kInt),
          at::tensor(targets, at::kLong)};
}

TEST(TokenSet, PadsToTheLongestOfTheBatch) {
  const TokenSet set(std::vector<Tokens>{tokens_of({2, 4, 3})}, 7);
  const auto batch = set.get({0, 2});
  EXPECT_TRUE(at::equal(
      batch.input,
      at::tensor({0, 1, 7, 0, 1, 0, 1, 1, 0, 200, 201, 202, 0, 1, 1, 1, 1, 1}, at::kLong).view({2, 3, 3})));
  EXPECT_TRUE(at::equal(batch.target, at::tensor({0, 2}, at::kLong)));
  EXPECT_EQ(set.get({1}).input.size(2), 4);
}

TEST(TokenSet, JoinsPartsAndPicksRows) {
  const TokenSet joined({tokens_of({1, 2}), tokens_of({3}, 2)}, 0);
  EXPECT_EQ(joined.size(), 3);
  EXPECT_EQ(joined.lengths(), (std::vector<int64_t>{1, 2, 3}));
  EXPECT_EQ(joined.get({2}).target.item<int64_t>(), 2);
  EXPECT_EQ(joined.get({2}).input[0][0][0].item<int64_t>(), 200);
  const TokenSet picked(tokens_of({1, 2, 3}), {2, 0}, 0);
  EXPECT_EQ(picked.size(), 2);
  EXPECT_EQ(picked.lengths(), (std::vector<int64_t>{3, 1}));
  EXPECT_EQ(picked.get({0}).target.item<int64_t>(), 2);
}

TEST(TokenSet, KeepsNumbersAndTheLackOfTargets) {
  auto tokens = tokens_of({2, 2});
  tokens.targets = at::tensor({0.5, 1.5}, at::kFloat).view({2, 1});
  EXPECT_TRUE(at::equal(TokenSet(std::vector<Tokens>{tokens}, 0).get({1}).target,
                        at::tensor({1.5}, at::kFloat).view({1, 1})));
  tokens.targets = at::Tensor();
  EXPECT_FALSE(TokenSet(std::vector<Tokens>{tokens}, 0).get({1}).target.defined());
}

/// Lengths from 1 to 60 in no order.
std::shared_ptr<const std::vector<int64_t>> some_lengths(int64_t count) {
  std::vector<int64_t> lengths;
  uint64_t state = 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    lengths.push_back(1 + static_cast<int64_t>((state >> 33) % 60));
  }
  return std::make_shared<const std::vector<int64_t>>(std::move(lengths));
}

SamplerOptions bucketed(int64_t rank, int64_t world, int64_t bucket, int64_t size) {
  return {.rank = rank, .world = world, .seed = 3, .bucket = bucket, .lengths = some_lengths(size)};
}

TEST(Bucketing, IsAPermutationInsideOfEachWindow) {
  const int64_t size = 1003, bucket = 100;
  const auto plain = DistributedSampler(size, {.seed = 3}).indices();
  const auto ordered = DistributedSampler(size, bucketed(0, 1, bucket, size)).indices();
  const auto lengths = some_lengths(size);
  for (int64_t begin = 0; begin < size; begin += bucket) {
    const auto end = std::min(begin + bucket, size);
    EXPECT_EQ(std::multiset<int64_t>(plain.begin() + begin, plain.begin() + end),
              std::multiset<int64_t>(ordered.begin() + begin, ordered.begin() + end));
    const int64_t turn = (begin / bucket) % 2 == 0 ? 1 : -1;
    for (int64_t i = begin + 1; i < end; ++i)
      ASSERT_GE(turn * (*lengths)[ordered[i - 1]], turn * (*lengths)[ordered[i]]) << i;
  }
  EXPECT_EQ(ordered, DistributedSampler(size, bucketed(0, 1, bucket, size)).indices());
}

TEST(Bucketing, GoesOnInsideAnEpochAtAnotherWorld) {
  const int64_t size = 500, taken = 123;
  const auto whole = DistributedSampler(size, bucketed(0, 1, 64, size)).indices();
  for (const int64_t world : {1, 2, 3}) {
    std::vector<int64_t> rest(static_cast<size_t>((size - taken + world - 1) / world * world));
    for (int64_t rank = 0; rank < world; ++rank) {
      DistributedSampler sampler(size, bucketed(rank, world, 64, size));
      sampler.resume({0, taken});
      const auto mine = sampler.indices();
      for (size_t i = 0; i < mine.size(); ++i) rest[world * i + rank] = mine[i];
    }
    rest.resize(size - taken);
    EXPECT_EQ(rest, std::vector<int64_t>(whole.begin() + taken, whole.end())) << world;
  }
}

TEST(Bucketing, NeedsALengthForEachSample) {
  EXPECT_ANY_THROW(DistributedSampler(10, {.bucket = 4}));
  EXPECT_ANY_THROW(DistributedSampler(10, bucketed(0, 1, 4, 9)));
}

}  // namespace
}  // namespace lockstep
