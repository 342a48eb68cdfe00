#include "lockstep/data/node_share.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <thread>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

/// Runs `body` in a thread for each rank of a job whose nodes have so many ranks each. tests/e2e has
/// processes.
void all_ranks(const std::vector<int>& nodes, const std::function<void(const NodeShare&)>& body) {
  const int world = std::accumulate(nodes.begin(), nodes.end(), 0);
  std::vector<std::string> texts(world);
  std::barrier meeting(world);
  std::vector<std::jthread> ranks;
  for (int node = 0, rank = 0; node < std::ssize(nodes); ++node) {
    for (int local = 0; local < nodes[node]; ++local, ++rank) {
      const auto exchange = [&, rank](const std::string& text) {
        texts[rank] = text;
        meeting.arrive_and_wait();
        const auto all = texts;
        meeting.arrive_and_wait();
        return all;
      };
      ranks.emplace_back([=, &body] { body({local, nodes[node], node, exchange}); });
    }
  }
}

// One tensor in the arena, a view of it, one from elsewhere, and one of no elements.
SharedSet example(Arena& arena) {
  auto whole = arena.empty({3, 4}, at::kFloat);
  for (int i = 0; i < 12; ++i) whole.mutable_data_ptr<float>()[i] = static_cast<float>(i);
  return {{whole, whole.slice(0, 1, 3), at::tensor({7, 8}, at::kLong), at::empty({0, 5}, at::kByte)},
          "a text"};
}

void expect_example(const SharedSet& set) {
  const auto whole = at::arange(12, at::kFloat).view({3, 4});
  EXPECT_EQ(set.text, "a text");
  ASSERT_EQ(set.tensors.size(), 4u);
  EXPECT_TRUE(at::equal(set.tensors[0], whole));
  EXPECT_TRUE(at::equal(set.tensors[1], whole.slice(0, 1, 3)));
  EXPECT_TRUE(at::equal(set.tensors[2], at::tensor({7, 8}, at::kLong)));
  EXPECT_EQ(set.tensors[3].sizes(), at::IntArrayRef({0, 5}));
  EXPECT_EQ(set.tensors[3].scalar_type(), at::kByte);
}

TEST(NodeShare, LoadsOnTheFirstRankOfEachNodeAndMapsOnTheOthers) {
  for (const auto& nodes : std::vector<std::vector<int>>{{3}, {2, 1}, {1, 3}, {1, 1}}) {
    std::atomic<int> loads = 0;
    all_ranks(nodes, [&](const NodeShare& node) {
      for (int round = 0; round < 3; ++round)
        expect_example(share_on_node(node, [&](Arena& arena) {
          EXPECT_EQ(node.local_rank, 0);
          ++loads;
          return example(arena);
        }));
    });
    EXPECT_EQ(loads, 3 * std::ssize(nodes));
  }
  expect_example(share_on_node({}, example));
}

TEST(NodeShare, TheOthersMapTheMemoryReadOnly) {
  all_ranks({2}, [](const NodeShare& node) {
    const auto set = share_on_node(node, example);
    std::ifstream maps("/proc/self/maps");
    const auto address = reinterpret_cast<uintptr_t>(set.tensors[0].const_data_ptr());
    for (std::string line; std::getline(maps, line);) {
      uintptr_t begin = 0, end = 0;
      char mode[5] = {};
      if (std::sscanf(line.c_str(), "%lx-%lx %4s", &begin, &end, mode) == 3 && begin <= address &&
          address < end) {
        EXPECT_STREQ(mode, "r--s");
      }
    }
  });
}

TEST(NodeShare, AnErrorIsEveryRanks) {
  for (const int bad_node : {0, 1}) {
    all_ranks({1, 2}, [&](const NodeShare& node) {
      try {
        share_on_node(node, [&](Arena& arena) -> SharedSet {
          if (node.node_rank == bad_node) throw InputError("bad row", "t.csv:3", "fix it");
          return example(arena);
        });
        ADD_FAILURE() << "no error";
      } catch (const InputError& error) {
        EXPECT_EQ(std::string(error.what()) + error.where() + error.hint(), "bad rowt.csv:3fix it");
      }
    });
  }
  all_ranks({2}, [](const NodeShare& node) {
    try {
      share_on_node(node, [](Arena&) -> SharedSet { throw std::runtime_error("no memory"); });
      ADD_FAILURE() << "no error";
    } catch (const std::exception& error) {
      EXPECT_STREQ(error.what(), "no memory");
    }
  });
}

}  // namespace
}  // namespace lockstep
