// An algorithm in place of the backend's own all-reduce.

#include "lockstep/comm/algorithms/algorithm.h"
#include "refusal.h"
#include "world.h"

namespace lockstep {
namespace {

using test::own_rank;
using test::world;

ProcessGroup open(const std::string& backend, const std::string& algorithm) {
  return comm::connect(test::runtime(), {.backend = backend, .allreduce = algorithm});
}

at::Tensor random_numbers(int64_t items) {
  at::manual_seed(100 + own_rank());
  return at::randn({items});
}

at::Tensor summed(const ProcessGroup& group, const at::Tensor& own, c10d::ReduceOp op = c10d::ReduceOp::SUM) {
  return test::reduced(group, own.clone(), op);
}

bool same_on_all(const ProcessGroup& group, const at::Tensor& tensor) {
  std::vector<at::Tensor> from_first = {tensor.clone()};
  group->broadcast(from_first)->wait();
  std::vector<at::Tensor> differ = {at::tensor(at::equal(from_first[0], tensor) ? 0 : 1)};
  group->allreduce(differ)->wait();
  return differ[0].item<int64_t>() == 0;
}

class OverEachBackend : public ::testing::TestWithParam<std::string> {};

TEST_P(OverEachBackend, EachAlgorithmSumsAlikeOnAllRanks) {
  for (const auto& algorithm : all_reduce_algorithms()) {
    auto group = open(GetParam(), algorithm.name);
    for (const int64_t items : {0, 1, 2, 1000, 100'003}) {
      const auto own = at::arange(items, at::kFloat).remainder(97).add(own_rank());
      const auto want =
          at::arange(items, at::kFloat).remainder(97).mul(world()) + world() * (world() - 1) / 2;
      EXPECT_TRUE(at::equal(summed(group, own), want)) << algorithm.name << " of " << items;
      EXPECT_TRUE(same_on_all(group, summed(group, random_numbers(items)))) << algorithm.name;
    }
  }
}

TEST_P(OverEachBackend, TypesAndOperationsAreTheBackendsOwn) {
  auto group = open(GetParam(), "halving_doubling");
  for (const auto type : {at::kHalf, at::kBFloat16, at::kDouble, at::kInt, at::kLong, at::kByte}) {
    const auto own = at::full({33}, own_rank() + 1).to(type);
    EXPECT_EQ(summed(group, own)[32].item<int>(), world() * (world() + 1) / 2) << type;
    EXPECT_EQ(summed(group, own, c10d::ReduceOp::MAX)[0].item<int>(), world()) << type;
    EXPECT_EQ(summed(group, own, c10d::ReduceOp::MIN)[0].item<int>(), 1) << type;
  }
  EXPECT_EQ(summed(group, at::full({3}, own_rank() * 2.0), c10d::ReduceOp::AVG)[1].item<float>(),
            float(world() - 1));
  EXPECT_NE(test::error_of([&] { summed(group, at::ones({2}).to(at::kComplexFloat)); }), "");
  EXPECT_EQ(summed(group, at::ones({4}))[0].item<float>(), float(world())) << "refused, and alive";
}

TEST_P(OverEachBackend, CallsKeepTheirOrderAndCallersDoNotWait) {
  auto group = open(GetParam(), "ring");
  std::vector<std::vector<at::Tensor>> tensors;
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  for (int i = 0; i < 20; ++i) tensors.push_back({at::full({int64_t{1} << (i % 12)}, float(i))});
  for (auto& own : tensors) works.push_back(group->allreduce(own));
  group->barrier()->wait();  // another of the backend's own, meanwhile
  works.back()->getFuture()->wait();
  for (int i = 0; i < 20; ++i) {
    works[static_cast<size_t>(i)]->wait();
    EXPECT_EQ(tensors[static_cast<size_t>(i)][0][0].item<float>(), float(i * world()));
  }
}

TEST_P(OverEachBackend, PartsOfTheJobGetTheAlgorithmToo) {
  const LaunchOptions options{.backend = GetParam(), .allreduce = "tree"};
  auto whole = comm::connect(test::runtime(), options);
  EXPECT_EQ(whole->getBackend(c10::kCPU)->getBackendName(), "tree");
  auto part = comm::split(test::runtime(), options, c10::kCPU, whole, own_rank() % 2, "parity-" + GetParam());
  if (!part) return;
  EXPECT_EQ(part->getBackend(c10::kCPU)->getBackendName(), "tree");
  EXPECT_EQ(summed(part, at::ones({5}))[4].item<float>(), float(part->getSize()));
}

TEST_P(OverEachBackend, ASlowNetworkIsSlowAndRight) {
  auto group = comm::connect(
      test::runtime(),
      {.backend = GetParam(), .allreduce = "ring", .latency_us = 20'000, .bandwidth_gbit = 0.001});
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_EQ(summed(group, at::ones({100}))[99].item<float>(), float(world()));
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(passed.count(), 0.04 * (world() - 1));
}

INSTANTIATE_TEST_SUITE_P(Backends, OverEachBackend, ::testing::Values("gloo", "mpi"),
                         [](const auto& info) { return info.param; });

// What the run says at its start.
TEST(AlgorithmBits, AreGloosWhereTheTableSaysSoAndNowhereElse) {
  auto gloo = test::open("gloo");
  for (const auto& algorithm : all_reduce_algorithms()) {
    auto group = open("gloo", algorithm.name);
    bool same = true;
    for (const int64_t items : {1, 7, 4099, 432'538, 3'000'001}) {
      const auto own = random_numbers(items);
      same = at::equal(summed(gloo, own), summed(group, own)) && same;
    }
    EXPECT_EQ(same, algorithm.has_bits_of_gloo(world())) << algorithm.name;
  }
}

TEST(AlgorithmInput, WhatNoBackendCanCarryIsRefusedBeforeAnybodyWaits) {
  const auto kind_of = [](const LaunchOptions& options) {
    return test::refusal_of([&] { comm::connect(test::runtime(), options); });
  };
  EXPECT_NE(kind_of({.backend = "nccl", .allreduce = "ring"}).find("the backend is nccl"), std::string::npos);
  EXPECT_NE(kind_of({.backend = "gloo", .allreduce = "rng"}).find("did you mean ring"), std::string::npos);
  EXPECT_NE(kind_of({.backend = "gloo", .latency_us = 5}).find("set launch.allreduce"), std::string::npos);
}

}  // namespace
}  // namespace lockstep
