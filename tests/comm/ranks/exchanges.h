#pragma once
// What gather, scatter and all-to-all have to bring, with any backend: each number tells who had it for whom.

#include "comm/ranks/world.h"

#include "lockstep/base/libtorch.h"

namespace lockstep::test {

/// What rank `from` has for rank `to`.
inline at::Tensor gift(int from, int to, int64_t items) {
  return at::arange(items, at::kInt) + 1'000'000 * (64 * from + to);
}

inline std::vector<at::Tensor> rooms(int64_t items) {
  std::vector<at::Tensor> tensors;
  for (int rank = 0; rank < world(); ++rank) tensors.push_back(at::full({items}, -1, at::kInt));
  return tensors;
}

inline void expect_gathers(const ProcessGroup& group, int root, int64_t items) {
  std::vector<at::Tensor> own = {gift(own_rank(), root, items)};
  std::vector<std::vector<at::Tensor>> lists;
  if (own_rank() == root) lists = {rooms(items)};
  c10d::GatherOptions options;
  options.rootRank = root;
  group->gather(lists, own, options)->wait();
  for (int rank = 0; own_rank() == root && rank < world(); ++rank)
    EXPECT_TRUE(at::equal(lists[0][size_t(rank)], gift(rank, root, items))) << items << " from " << rank;
}

inline void expect_scatters(const ProcessGroup& group, int root, int64_t items) {
  std::vector<at::Tensor> own = {at::full({items}, -1, at::kInt)};
  std::vector<std::vector<at::Tensor>> lists;
  if (own_rank() == root) {
    lists.emplace_back();
    for (int rank = 0; rank < world(); ++rank) lists[0].push_back(gift(root, rank, items));
  }
  c10d::ScatterOptions options;
  options.rootRank = root;
  group->scatter(own, lists, options)->wait();
  EXPECT_TRUE(at::equal(own[0], gift(root, own_rank(), items))) << items << " from " << root;
}

/// `items(from, to)` of rows of two; nothing for some, as ranks of unequal load have.
template <class Items>
void expect_exchanges(const ProcessGroup& group, const Items& items) {
  std::vector<at::Tensor> out, want;
  std::vector<int64_t> out_rows, in_rows;
  for (int rank = 0; rank < world(); ++rank) {
    out_rows.push_back(items(own_rank(), rank));
    in_rows.push_back(items(rank, own_rank()));
    out.push_back(gift(own_rank(), rank, 2 * out_rows.back()).view({-1, 2}));
    want.push_back(gift(rank, own_rank(), 2 * in_rows.back()).view({-1, 2}));
  }
  at::Tensor from = at::cat(out), expected = at::cat(want), into = at::full_like(expected, -1);
  base::own_all_to_all_single(*group, into, from, in_rows, out_rows)->wait();
  EXPECT_TRUE(at::equal(into, expected));
}

inline void expect_even_exchanges(const ProcessGroup& group, int64_t items) {
  std::vector<at::Tensor> out, want;
  for (int rank = 0; rank < world(); ++rank) {
    out.push_back(gift(own_rank(), rank, items));
    want.push_back(gift(rank, own_rank(), items));
  }
  std::vector<int64_t> even;
  at::Tensor from = at::cat(out), expected = at::cat(want), into = at::full_like(expected, -1);
  base::own_all_to_all_single(*group, into, from, even, even)->wait();
  EXPECT_TRUE(at::equal(into, expected)) << items;
}

/// All of it: with nothing, with one number, with many slots of shared memory.
inline void expect_what_ranks_exchange(const ProcessGroup& group) {
  for (const int64_t items : {1, 1000, 400'001}) {
    for (const int root : {0, world() - 1}) {
      expect_gathers(group, root, items);
      expect_scatters(group, root, items);
    }
    expect_even_exchanges(group, items);
  }
  expect_exchanges(group, [](int from, int to) { return (from + 2 * to) % 3; });
  expect_exchanges(group, [](int from, int to) { return 150'000 * ((from + 2 * to) % 3) + from; });
}

}  // namespace lockstep::test
