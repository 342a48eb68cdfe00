// gather, scatter and all-to-all in shared memory, and over gloo, whose answers they have to be.
#include "comm/ranks/exchanges.h"

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

TEST_F(SharedExchanges, TakeTensorsThatLieWithGaps) {
  std::vector<at::Tensor> own = {at::full({4, 6}, float(own_rank())).t()};
  std::vector<std::vector<at::Tensor>> lists;
  if (own_rank() == last_) {
    lists.emplace_back();
    for (int rank = 0; rank < world(); ++rank) lists[0].push_back(at::zeros({4, 6}).t());
  }
  c10d::GatherOptions options;
  options.rootRank = last_;
  group_->gather(lists, own, options)->wait();
  for (int rank = 0; own_rank() == last_ && rank < world(); ++rank)
    EXPECT_EQ(lists[0][size_t(rank)].mean().item<float>(), float(rank));
  group_->barrier()->wait();
}

TEST_F(SharedExchanges, HaveAFutureWithTheTensors) {
  std::vector<at::Tensor> own = {at::full({2}, float(own_rank()))};
  std::vector<std::vector<at::Tensor>> lists;
  if (own_rank() == 0) lists.emplace_back(size_t(world()), at::Tensor());
  for (int rank = 0; own_rank() == 0 && rank < world(); ++rank) lists[0][size_t(rank)] = at::zeros({2});
  const auto work = group_->gather(lists, own);
  work->wait();
  EXPECT_EQ(work->getFuture()->value().toTensorVector().size(), own_rank() == 0 ? size_t(world()) : 0);
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

TEST_F(SharedExchanges, MayGoOnBehindTheCall) {
  std::vector<at::Tensor> own = {at::zeros({3})}, sum = {at::ones({1})};
  std::vector<std::vector<at::Tensor>> lists;
  if (own_rank() == last_) {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    lists.emplace_back(size_t(world()), at::full({3}, 7.F));
  }
  c10d::ScatterOptions options;
  options.rootRank = last_;
  const auto scattered = group_->scatter(own, lists, options);
  group_->allreduce(sum)->wait();
  scattered->wait();
  EXPECT_EQ(own[0][2].item<float>(), 7);
  EXPECT_EQ(sum[0].item<float>(), float(world()));
}

// What one sends and another expects is compared before anybody writes.
TEST_F(SharedExchanges, OfUnlikeSizesAreAnErrorOfAllRanks) {
  if (world() == 1) GTEST_SKIP() << "needs two ranks";
  std::vector<int64_t> out(size_t(world()), 1), in(size_t(world()), 1);
  if (own_rank() == last_) in[0] = 2;
  at::Tensor from = at::ones({world()}), into = at::zeros({own_rank() == last_ ? world() + 1 : world()});
  const auto text =
      test::error_of([&] { base::own_all_to_all_single(*group_, into, from, in, out)->wait(); });
  const std::string sizes = "rank 0 sends 4 bytes to rank " + std::to_string(last_) + ", which expects 8";
  EXPECT_NE(text.find(sizes), std::string::npos) << text;
  EXPECT_EQ(into.abs().sum().item<float>(), 0);
  EXPECT_TRUE(comm::is_dead(group_));
}

TEST_F(SharedExchanges, RefuseWhatTheyCannotCarry) {
  std::vector<at::Tensor> own = {at::ones({2})};
  std::vector<std::vector<at::Tensor>> lists(1, std::vector<at::Tensor>(size_t(world()) + 1, at::ones({2})));
  c10d::GatherOptions options;
  options.rootRank = own_rank();
  EXPECT_NE(test::error_of([&] { group_->gather(lists, own, options); }).find("the root needs one list of "),
            std::string::npos);
  options.rootRank = world();
  EXPECT_NE(test::error_of([&] { group_->gather(lists, own, options); }).find("root of a gather"),
            std::string::npos);
  std::vector<int64_t> rows(size_t(world()), 2);
  at::Tensor short_one = at::ones({world()}), into = at::ones({world()});
  EXPECT_NE(test::error_of([&] {
              base::own_all_to_all_single(*group_, into, short_one, rows, rows);
            }).find(" rows, for "),
            std::string::npos);
  group_->barrier()->wait();
}

TEST_F(SharedExchanges, OfSeveralTensorsAreOneCall) {
  std::vector<at::Tensor> mine, all, parts, sums;
  for (const int64_t items : {3, 40'000}) {
    mine.push_back(test::gift(own_rank(), 0, items));
    all.push_back(at::zeros({world() * items}, at::kInt));
    parts.push_back(at::full({world() * items}, 1.F + float(own_rank())));
    sums.push_back(at::zeros({items}));
  }
  base::own_all_gather_single_coalesced(*group_, all, mine)->wait();
  base::own_reduce_scatter_single_coalesced(*group_, sums, parts)->wait();
  for (size_t i = 0; i < mine.size(); ++i) {
    const auto pieces = all[i].chunk(world());
    for (int rank = 0; rank < world(); ++rank)
      EXPECT_TRUE(at::equal(pieces[size_t(rank)], test::gift(rank, 0, mine[i].numel())));
    EXPECT_TRUE(sums[i].eq(float(world() * (world() + 1)) / 2).all().item<bool>());
  }
}

}  // namespace
}  // namespace lockstep
