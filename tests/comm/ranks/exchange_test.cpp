// gather, scatter and all-to-all in shared memory, and over gloo, whose answers they have to be.
#include "comm/ranks/exchanges.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <csignal>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/libtorch.h"
#include "world.h"

namespace lockstep {
namespace {

using test::own_rank;
using test::world;

class Exchanges : public ::testing::TestWithParam<const char*> {
 protected:
  ProcessGroup group_ = test::open(GetParam());
};

TEST_P(Exchanges, BringEachRankWhatOthersHaveForIt) {
  test::expect_what_ranks_exchange(group_);
}

INSTANTIATE_TEST_SUITE_P(Over, Exchanges, ::testing::Values("shared", "gloo"),
                         [](const auto& backend) { return std::string(backend.param); });

class SharedExchanges : public ::testing::Test {
 protected:
  ProcessGroup group_ = test::open("shared");
  int last_ = world() - 1;
};

// Columns of a wider tensor: what lies between them stays as it is.
TEST_F(SharedExchanges, TakeTensorsThatLieWithGaps) {
  const auto column = [](const at::Tensor& wide) { return wide.select(1, 1); };
  std::vector<at::Tensor> own = {column(at::zeros({24, 3}, at::kInt))}, wide;
  own[0].copy_(test::gift(own_rank(), last_, 24));
  std::vector<std::vector<at::Tensor>> lists;
  if (own_rank() == last_) lists.emplace_back();
  for (int rank = 0; own_rank() == last_ && rank < world(); ++rank)
    lists[0].push_back(column(wide.emplace_back(at::full({24, 3}, -1, at::kInt))));
  c10d::GatherOptions gather;
  gather.rootRank = last_;
  group_->gather(lists, own, gather)->wait();
  for (size_t rank = 0; rank < wide.size(); ++rank) {
    EXPECT_TRUE(at::equal(lists[0][rank], test::gift(int(rank), last_, 24)));
    EXPECT_TRUE(wide[rank].select(1, 0).eq(-1).all().item<bool>());
  }
  c10d::ScatterOptions scatter;
  scatter.rootRank = last_;
  own[0].fill_(-1);
  group_->scatter(own, lists, scatter)->wait();
  EXPECT_TRUE(at::equal(own[0], test::gift(own_rank(), last_, 24)));
}

TEST_F(SharedExchanges, OfListsBringTensorsOfAnySize) {
  std::vector<at::Tensor> out, in, want;
  for (int rank = 0; rank < world(); ++rank) {
    out.push_back(test::gift(own_rank(), rank, 3 + own_rank() + 2 * rank));
    want.push_back(test::gift(rank, own_rank(), 3 + rank + 2 * own_rank()));
    in.push_back(at::full_like(want.back(), -1));
  }
  group_->alltoall(in, out)->wait();
  for (int rank = 0; rank < world(); ++rank) EXPECT_TRUE(at::equal(in[size_t(rank)], want[size_t(rank)]));
}

// What one sends and another expects is compared before anybody writes.
TEST_F(SharedExchanges, OfUnlikeSizesAreAnErrorOfAllRanks) {
  if (world() == 1) GTEST_SKIP() << "needs two ranks";
  std::vector<int64_t> out(size_t(world()), 1), in(size_t(world()), 1);
  if (own_rank() == last_) in[0] = 2;
  at::Tensor from = at::ones({world()}), into = at::zeros({own_rank() == last_ ? world() + 1 : world()});
  const auto text =
      test::error_of([&] { base::own_all_to_all_single(*group_, into, from, in, out)->wait(); });
  const std::string sizes =
      "rank 0 sends 4 bytes of Float to rank " + std::to_string(last_) + ", which expects 8 of Float";
  EXPECT_TRUE(test::has(text, sizes));
  EXPECT_EQ(into.abs().sum().item<float>(), 0);
  EXPECT_TRUE(comm::is_dead(group_));
}

TEST_F(SharedExchanges, RefuseWhatTheyCannotCarry) {
  std::vector<at::Tensor> own = {at::ones({2})};
  std::vector<std::vector<at::Tensor>> lists(1, std::vector<at::Tensor>(size_t(world()) + 1, at::ones({2})));
  c10d::GatherOptions options;
  options.rootRank = own_rank();
  EXPECT_TRUE(test::has(test::error_of([&] { group_->gather(lists, own, options); }), "needs one list of "));
  options.rootRank = world();
  EXPECT_TRUE(test::has(test::error_of([&] { group_->gather(lists, own, options); }), "root of a gather"));
  std::vector<int64_t> rows(size_t(world()), 2);
  at::Tensor short_one = at::ones({world()}), into = at::ones({world()});
  EXPECT_TRUE(
      test::has(test::error_of([&] { base::own_all_to_all_single(*group_, into, short_one, rows, rows); }),
                " rows, for "));
  group_->barrier()->wait();
}

TEST_F(SharedExchanges, OfSeveralTensorsAreGloosBitForBit) {
  auto gloo = test::open("gloo");
  at::manual_seed(own_rank());
  std::vector<at::Tensor> mine, all, parts, sums, like;
  for (const int64_t items : {3, 40'000}) {
    mine.push_back(test::gift(own_rank(), 0, items));
    all.push_back(at::zeros({world() * items}, at::kInt));
    parts.push_back(at::randn({world() * items}));
    sums.push_back(at::zeros({items}));
    like.push_back(at::zeros({items}));
  }
  auto copies = parts;
  for (auto& copy : copies) copy = copy.clone();
  base::own_all_gather_single_coalesced(*group_, all, mine)->wait();
  base::own_reduce_scatter_single_coalesced(*group_, sums, parts)->wait();
  base::own_reduce_scatter_single_coalesced(*gloo, like, copies)->wait();
  for (size_t i = 0; i < mine.size(); ++i) {
    const auto pieces = all[i].chunk(world());
    for (int rank = 0; rank < world(); ++rank)
      EXPECT_TRUE(at::equal(pieces[size_t(rank)], test::gift(rank, 0, mine[i].numel())));
    EXPECT_TRUE(at::equal(sums[i], like[i]));
  }
}

TEST(Gloo, RefusesGroupsOfAProgramsOwn) {
  const auto own = c10::make_intrusive<c10d::ProcessGroup>(c10::make_intrusive<c10d::HashStore>(), 0, 1);
  EXPECT_THROW(comm::split(test::runtime(), {.backend = "gloo"}, c10::kCPU, own, 0, "part"), InputError);
  EXPECT_THROW(comm::judge_stall(own, "a step", std::chrono::seconds(1)), InputError);
}

// What waits for a group's death is no reason to keep it.
TEST(Gloo, AGroupThatEndsTakesItsThreadsAlong) {
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {});
  };
  auto group = test::open("gloo");
  group->barrier()->wait();
  const auto with = threads();
  group.reset();
  EXPECT_LT(threads(), with);
}

TEST(Gloo, SigpipeIsIgnored) {
  struct sigaction now {};
  std::signal(SIGPIPE, SIG_DFL);
  auto group = test::open("gloo");
  ::sigaction(SIGPIPE, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_IGN);
}

TEST(Connect, RefusesWhatThereIsNot) {
  EXPECT_TRUE(test::has(test::error_of([] { test::open("nccl"); }), "needs a GPU"));
  EXPECT_TRUE(test::has(test::error_of([] { test::open("smoke-signals"); }), "smoke-signals"));
}

}  // namespace
}  // namespace lockstep
