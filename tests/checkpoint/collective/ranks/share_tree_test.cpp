// A checkpoint on every rank, and every rank's state on rank 0: the same bits, a piece at a time.
#include "lockstep/checkpoint/collective/share_tree.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <functional>

#include "live_bytes.h"
#include "lockstep/base/error.h"
#include "parallel/ranks_group.h"

namespace lockstep::checkpoint {
namespace {

constexpr int64_t kPiece = 1 << 20;

const Team& team() {
  static const Team instance(test::runtime().job(), test::group(), at::kCPU);
  return instance;
}

// By how much more tensors hold while the work runs.
int64_t most_in(const std::function<void()>& work) {
  const test::LiveBytes bytes;
  work();
  return bytes.most();
}

at::Tensor numbers(int64_t count, int seed) {
  return at::randn({count}, at::make_generator<at::CPUGeneratorImpl>(static_cast<uint64_t>(seed)));
}

// Sizes around a piece's, none, odd bytes, shared and strided memory, and what is no tensor.
Tree tree_of(int seed) {
  const auto large = numbers(3 * kPiece / 4 + 5, seed);
  const auto odd = numbers(1001, seed + 1).to(at::kHalf).slice(0, 0, 997);
  return make_dict(
      {{"large", large},
       {"a part of it", large.slice(0, 7, 700000)},
       {"transposed", numbers(35, seed + 2).view({5, 7}).t()},
       {"channels",
        numbers(2 * 3 * 4 * 5, seed + 3).view({2, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast)},
       {"odd", odd},
       {"bytes", torch::tensor({1, 2, 3}, at::kByte)},
       {"empty", at::empty({0, 4})},
       {"one", torch::tensor(seed, at::kLong)},
       {"list", make_list({Tree(int64_t{3}), Tree("text"), Tree(2.5), Tree(), Tree(true), make_list()})},
       {int64_t{7}, make_dict({{"deep", numbers(10, seed + 4).to(at::kBFloat16)}})}});
}

int64_t bytes_of(const Tree& tree) {
  if (tree.isTensor()) return static_cast<int64_t>(tree.toTensor().nbytes());
  int64_t sum = 0;
  if (tree.isGenericDict())
    for (const auto& [key, value] : items(tree)) sum += bytes_of(value);
  return sum;
}

void expect_same(const Tree& a, const Tree& b) {
  ASSERT_EQ(a.tagKind(), b.tagKind());
  if (a.isGenericDict()) {
    const auto ours = items(a), theirs = items(b);
    ASSERT_EQ(ours.size(), theirs.size());
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_EQ(ours[i].first, theirs[i].first);
      expect_same(ours[i].second, theirs[i].second);
    }
  } else if (a.isList()) {
    const auto ours = elements(a), theirs = elements(b);
    ASSERT_EQ(ours.size(), theirs.size());
    for (size_t i = 0; i < ours.size(); ++i) expect_same(ours[i], theirs[i]);
  } else if (a.isTensor()) {
    EXPECT_EQ(a.toTensor().strides(), b.toTensor().strides());
    EXPECT_EQ(a.toTensor().dtype(), b.toTensor().dtype());
    EXPECT_TRUE(at::equal(a.toTensor(), b.toTensor()));
  } else {
    EXPECT_EQ(a, b);
  }
}

TEST(ShareTree, EveryRankHasTheFirstOnesBits) {
  for (const int64_t piece : {int64_t{1000}, kPiece, kInFlight}) {
    const auto shared = share_tree(
        team(), [] { return tree_of(1); }, piece);
    expect_same(shared, tree_of(1));
    const auto large = get(shared, "large").toTensor(), part = get(shared, "a part of it").toTensor();
    EXPECT_TRUE(part.is_alias_of(large));
  }
  expect_same(share_tree(team(), [] { return make_dict(); }), make_dict());
}

TEST(ShareTree, HoldsOnePieceBesideTheTree) {
  auto whole = tree_of(2);
  const int64_t slack = 64 << 10;  // the frame, and what is small
  const auto most = most_in([&] {
    share_tree(
        team(), [&] { return whole; }, kPiece);
  });
  const int64_t own = team().first() ? 0 : bytes_of(whole) - bytes_of(get(whole, "a part of it"));
  EXPECT_LE(most, (team().world() == 1 ? 0 : own + kPiece) + slack);
  EXPECT_GE(most, own);
}

TEST(ShareTree, TheFirstRanksErrorIsEverybodys) {
  EXPECT_THROW(share_tree(team(), []() -> Tree { throw InputError("damaged", "a.pt", ""); }), InputError);
}

TEST(GatherTrees, TheFirstRankHasEachOnesBits) {
  for (const int64_t piece : {int64_t{999}, kInFlight}) {
    const auto all = gather_trees(team(), tree_of(10 * team().rank()), piece);
    ASSERT_EQ(all.size(), team().first() ? static_cast<size_t>(team().world()) : 0);
    for (size_t rank = 0; rank < all.size(); ++rank)
      expect_same(all[rank], snapshot(tree_of(10 * static_cast<int>(rank))));
  }
}

TEST(GatherTrees, HoldsOnePieceBesideTheTrees) {
  const auto own = tree_of(3);
  const auto tree = bytes_of(own) - bytes_of(get(own, "a part of it"));
  const int64_t slack = 64 << 10;
  const auto most = most_in([&] { gather_trees(team(), own, kPiece); });
  const int64_t others = team().world() - 1;
  const int64_t held = team().first() ? others * tree : tree;  // a sender has a snapshot of its own
  EXPECT_LE(most, held + (others > 0 ? kPiece : 0) + slack);
}

}  // namespace
}  // namespace lockstep::checkpoint
