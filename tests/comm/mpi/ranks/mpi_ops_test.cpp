// The mpi backend against gloo, operation by operation and type by type.
#include "comm/mpi/ranks/nodes.h"

#include <thread>

#include "comm/ranks/exchanges.h"
#include "comm/ranks/world.h"

namespace lockstep {
namespace {

using c10d::ReduceOp;
using test::fractions;
using test::own_rank;
using test::world;

constexpr std::array kTypes = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte,
                               at::kChar,  at::kShort,  at::kInt,  at::kLong,     at::kBool};
// one element, one wave of flags, just over a slot of floats, several slots
constexpr std::array<int64_t, 4> kMessageSizes = {1, 1000, 131'073, 300'000};

// Small whole numbers: every order of summation has the same result, in every type.
at::Tensor whole_numbers(int64_t items, at::ScalarType type, int rank = own_rank()) {
  const auto seed = at::detail::createCPUGenerator(static_cast<uint64_t>(items + 31 * rank));
  if (type == at::kBool) return at::randint(0, 2, {items}, seed).to(at::kBool);
  return at::randint(0, 9, {items}, seed).to(type);
}

class Pair {
 public:
  explicit Pair(int ranks_per_node)
      : pretend_(ranks_per_node), gloo(test::open("gloo")), mpi(test::open("mpi")) {}

 private:
  test::PretendNodes pretend_;

 public:
  ProcessGroup gloo, mpi;
};

// Parameter: the ranks of a (pretended) node; 0 is all on one.
class MpiOps : public ::testing::TestWithParam<int> {
 protected:
  Pair pair_{GetParam()};
};

at::Tensor all_reduced(const ProcessGroup& group, const at::Tensor& input, ReduceOp::RedOpType op) {
  return test::reduced(group, input.clone(), op);
}

TEST_P(MpiOps, AllReduceOfEveryType) {
  for (const auto type : kTypes) {
    for (const auto op : {ReduceOp::SUM, ReduceOp::MIN, ReduceOp::MAX}) {
      for (const int64_t items : kMessageSizes) {
        const at::Tensor input = whole_numbers(items, type);
        const at::Tensor got = all_reduced(pair_.mpi, input, op);
        // gloo knows no 16-bit integers
        const at::Tensor want = type == at::kShort ? all_reduced(pair_.gloo, input.to(at::kInt), op).to(type)
                                                   : all_reduced(pair_.gloo, input, op);
        // gloo adds bools as bytes: compare truth, not bytes
        ASSERT_TRUE(type == at::kBool ? at::equal(got, want.to(at::kByte).ne(0)) : at::equal(got, want))
            << type << " op " << int(op) << " items " << items;
      }
    }
  }
}

TEST_P(MpiOps, WorldTwoHasGloosBits) {
  if (world() != 2)
    GTEST_SKIP() << "gloo's order of summation depends on the place in the message beyond two ranks";
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    const at::Tensor input = fractions(432'107, type);
    EXPECT_TRUE(at::equal(all_reduced(pair_.mpi, input, ReduceOp::SUM),
                          all_reduced(pair_.gloo, input, ReduceOp::SUM)))
        << type;
  }
}

TEST_P(MpiOps, EveryRankHasTheSameBitsInRankOrder) {
  const at::Tensor input = fractions(100'003, at::kFloat);
  EXPECT_TRUE(at::equal(all_reduced(pair_.mpi, input, ReduceOp::SUM),
                        test::sum_in_order(pair_.mpi, input, GetParam())));
}

TEST_P(MpiOps, BroadcastFromEveryRank) {
  for (const auto type : kTypes) {
    for (int root = 0; root < world(); ++root) {
      std::vector<at::Tensor> tensors = {whole_numbers(70'000, type)};
      c10d::BroadcastOptions options;
      options.rootRank = root;
      pair_.mpi->broadcast(tensors, options)->wait();
      ASSERT_TRUE(at::equal(tensors[0], whole_numbers(70'000, type, root))) << type << " from " << root;
    }
  }
}

TEST_P(MpiOps, ReduceToEveryRank) {
  for (int root = 0; root < world(); ++root) {
    for (const int64_t items : kMessageSizes) {
      c10d::ReduceOptions options;
      options.rootRank = root;
      const at::Tensor input = whole_numbers(items, at::kFloat);
      std::vector<at::Tensor> got = {input.clone()};
      pair_.mpi->reduce(got, options)->wait();
      const at::Tensor sum = all_reduced(pair_.gloo, input, ReduceOp::SUM);
      EXPECT_TRUE(at::equal(got[0], own_rank() == root ? sum : input)) << "only the root's tensor changes";
    }
  }
}

TEST_P(MpiOps, AllGatherLists) {
  for (const auto type : kTypes) {
    for (const int64_t items : kMessageSizes) {
      std::vector<at::Tensor> input = {whole_numbers(items, type)};
      std::vector<std::vector<at::Tensor>> got(1);
      for (int rank = 0; rank < world(); ++rank) got[0].push_back(at::empty_like(input[0]));
      pair_.mpi->allgather(got, input)->wait();
      for (int rank = 0; rank < world(); ++rank)
        ASSERT_TRUE(at::equal(got[0][size_t(rank)], whole_numbers(items, type, rank)))
            << type << " " << items;
    }
  }
}

TEST_P(MpiOps, AllGatherBase) {
  at::Tensor input = whole_numbers(12'345, at::kDouble);
  at::Tensor output = at::empty({world(), 12'345}, at::kDouble);
  base::own_all_gather_single(*pair_.mpi, output, input)->wait();
  for (int rank = 0; rank < world(); ++rank)
    EXPECT_TRUE(at::equal(output[rank], whole_numbers(12'345, at::kDouble, rank)));
}

TEST_P(MpiOps, ReduceScatterOfBothKinds) {
  for (const auto type : {at::kFloat, at::kHalf, at::kLong}) {
    const at::Tensor whole = whole_numbers(90'001 * world(), type);
    const at::Tensor want = all_reduced(pair_.gloo, whole, ReduceOp::SUM).chunk(world())[size_t(own_rank())];
    at::Tensor base = at::empty({90'001}, type);
    at::Tensor input = whole;
    lockstep::base::own_reduce_scatter_single(*pair_.mpi, base, input)->wait();
    EXPECT_TRUE(at::equal(base, want)) << type;
    std::vector<at::Tensor> output = {at::empty({90'001}, type)};
    std::vector<std::vector<at::Tensor>> lists = {whole.chunk(world())};
    pair_.mpi->reduce_scatter(output, lists)->wait();
    EXPECT_TRUE(at::equal(output[0], want)) << type;
  }
}

TEST_P(MpiOps, SendAndReceiveAroundTheRing) {
  const int next = (own_rank() + 1) % world(), before = (own_rank() + world() - 1) % world();
  std::vector<at::Tensor> out = {whole_numbers(100'000, at::kFloat)}, in = {at::empty({100'000})};
  auto sent = pair_.mpi->send(out, next, 5);
  auto received = pair_.mpi->recv(in, before, 5);
  received->wait();
  sent->wait();
  EXPECT_TRUE(at::equal(in[0], whole_numbers(100'000, at::kFloat, before)));
  EXPECT_EQ(received->sourceRank(), before);
}

TEST_P(MpiOps, ThousandsInARow) {
  for (int i = 0; i < 1000; ++i) {
    std::vector<at::Tensor> tensors = {at::full({i % 40 + 1}, float(own_rank() + i))};
    pair_.mpi->allreduce(tensors)->wait();
    const int sum = world() * (world() - 1) / 2 + world() * i;
    ASSERT_EQ(tensors[0][i % 40].item<float>(), float(sum));
    if (i % 7 == 0) pair_.mpi->barrier()->wait();
    if (i % 5 == 0) {
      c10d::BroadcastOptions options;
      options.rootRank = i % world();
      std::vector<at::Tensor> news = {at::full({8}, own_rank())};
      pair_.mpi->broadcast(news, options)->wait();
      ASSERT_EQ(news[0][0].item<double>(), options.rootRank);
    }
  }
}

TEST_P(MpiOps, GatherScatterAndExchange) {
  test::expect_what_ranks_exchange(pair_.mpi);
}

// A ring's messages go on a thread of their own meanwhile: neither may get the other's.
TEST_P(MpiOps, AGatherBesideAnAllReduceOfMessages) {
  const test::PretendNodes pretend(GetParam());
  auto group = comm::connect(test::runtime(), {.backend = "mpi", .allreduce = "ring"});
  for (int round = 0; round < 20; ++round) {
    std::vector<at::Tensor> sum = {at::full({50'000}, 1.F)};
    const auto work = group->allreduce(sum);
    test::expect_gathers(group, 0, 50'000);
    work->wait();
    ASSERT_TRUE(sum[0].eq(float(world())).all().item<bool>());
  }
}

TEST_P(MpiOps, ExchangesThatDifferAreAnErrorThatSaysSo) {
  if (world() == 1) GTEST_SKIP() << "needs two ranks";
  auto gather = test::open("mpi");
  std::vector<at::Tensor> own = {at::ones({own_rank() == world() - 1 ? 5 : 10})};
  std::vector<std::vector<at::Tensor>> lists;
  if (own_rank() == 0) lists.emplace_back();
  for (int rank = 0; own_rank() == 0 && rank < world(); ++rank) lists[0].push_back(at::zeros({10}));
  const auto text = test::error_of([&] {
    gather->gather(lists, own)->wait();
    gather->barrier()->wait();  // in memory, who waits for nobody in a call hears of it in the next
  });
  EXPECT_NE(text.find("the ranks' calls differ: rank"), std::string::npos) << text;
  test::runtime().barrier();
}

INSTANTIATE_TEST_SUITE_P(Nodes, MpiOps, ::testing::Values(0, 1, 2), [](const auto& info) {
  return info.param == 0 ? std::string("OneNode") : std::to_string(info.param) + "ANode";
});

TEST(MpiBackend, GathersInRankOrderWhereRanksAreDealtToNodesInTurn) {
  const test::PretendNodes pretend(-2);
  auto group = test::open("mpi");
  at::Tensor all = at::empty({world()}, at::kInt), own = at::full({1}, own_rank(), at::kInt);
  base::own_all_gather_single(*group, all, own)->wait();
  EXPECT_TRUE(at::equal(all, at::arange(world(), at::kInt)));
}

TEST(MpiBackend, StridedTensorsKeepTheirMeaning) {
  auto group = test::open("mpi");
  // rank 0 broadcasts rows, the others receive into columns
  at::Tensor rows = at::arange(12.0).view({3, 4});
  at::Tensor columns = at::zeros({4, 3}).t();
  std::vector<at::Tensor> tensors = {own_rank() == 0 ? rows : columns};
  group->broadcast(tensors)->wait();
  EXPECT_TRUE(at::equal(tensors[0], rows));
}

TEST(MpiBackend, CoalescedIsEachOne) {
  auto group = test::open("mpi");
  std::vector<at::Tensor> tensors = {at::full({5}, 1.0), at::full({3}, 2.0)};
  group->allreduce_coalesced(tensors)->wait();
  EXPECT_EQ(tensors[0][4].item<double>(), world());
  EXPECT_EQ(tensors[1][2].item<double>(), 2 * world());
}

TEST(MpiBackend, WrongArgumentsLeaveTheGroupAlive) {
  auto group = test::open("mpi");
  auto backend = group->getBackend(c10::kCPU);
  std::vector<at::Tensor> two = {at::ones({1}), at::ones({1})};
  const auto refused = [](auto&& body, const char* words) {
    EXPECT_NE(test::error_of(body).find(words), std::string::npos) << test::error_of(body);
  };
  refused([&] { backend->allreduce(two); }, "takes one tensor per rank, not 2");
  std::vector<at::Tensor> complex = {at::ones({1}).to(at::kComplexFloat)};
  c10d::AllreduceOptions greatest;
  greatest.reduceOp = c10d::ReduceOp::MAX;
  refused([&] { backend->allreduce(complex, greatest); }, "cannot reduce ComplexFloat");
  at::Tensor odd = at::empty({3 * world()}), part = at::empty({2});
  if (world() > 1)
    refused([&] { backend->_allgather_base(odd, part); }, "the tensors of a collective differ");
  std::vector<at::Tensor> fine = {at::ones({1})};
  group->allreduce(fine)->wait();
  EXPECT_EQ(fine[0].item<float>(), float(world()));
}

TEST(MpiBackend, WorksFromAnotherThread) {
  auto group = test::open("mpi");
  for (int i = 0; i < 20; ++i) {
    std::thread other([&] {
      std::vector<at::Tensor> tensors = {at::ones({100'000})};
      group->allreduce(tensors)->wait();
      EXPECT_EQ(tensors[0][99'999].item<float>(), float(world()));
    });
    other.join();
    group->barrier()->wait();
  }
}

}  // namespace
}  // namespace lockstep
