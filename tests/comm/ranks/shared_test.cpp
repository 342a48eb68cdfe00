// The backend shared: gloo's bits, whoever is late, and gloo itself for what is seldom.
#include <sched.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <future>
#include <limits>
#include <thread>

#include "lockstep/base/libtorch.h"
#include "shared_buffer.h"
#include "world.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using c10d::ReduceOp;
using test::own_rank;
using test::reduced;
using test::same_bits;
using test::world;

// One element; fewer than ranks; around the size up to which all read all; odd; several sections and slots;
// several of gloo's messages a rank.
constexpr std::array<int64_t, 9> kSizes = {1, 3, 250, 4096, 4097, 20'011, 131'073, 432'538, 3'000'001};

// And no number at all, where several ranks have it.
at::Tensor with_nans(int64_t items, at::ScalarType type, int seed = 0) {
  auto some = test::numbers(items, type, seed);
  if (!at::isIntegralType(type, true))
    some.masked_fill_(test::numbers(items, at::kFloat, seed + 1000) > 2.3,
                      std::numeric_limits<double>::quiet_NaN());
  return some;
}

class SharedSums : public ::testing::Test {
 protected:
  ProcessGroup shared_ = test::open("shared"), gloo_ = test::open("gloo");

  // The gloo of libtorch 2.7 has no NaN but 0x7fff among halves, and keeps the old one where the sum is the
  // number that the old one's bits spell: `rhs != *this` of its float16 asks so.
  bool is_as_in_gloo(at::ScalarType type) const {
    const auto none = at::full({1}, std::numeric_limits<double>::quiet_NaN(), at::kHalf);
    return type != at::kHalf || same_bits(reduced(gloo_, none.clone()), none + none);
  }
};

TEST_F(SharedSums, AreWhatAutoTakesOnOneNode) {
  const auto group = test::open("auto");
  EXPECT_EQ(group->getBackend(c10::kCPU)->getBackendName(), "shared");
  EXPECT_EQ(group->getBackendName(), "custom") << "c10d takes whatever is called gloo for its own class";
}

TEST_F(SharedSums, HaveGloosBits) {
  for (const auto type : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16}) {
    if (!is_as_in_gloo(type)) continue;
    for (const auto items : kSizes) {
      const auto own = with_nans(items, type);
      const auto want = reduced(gloo_, own.clone());
      ASSERT_TRUE(same_bits(reduced(shared_, own.clone()), want)) << type << " of " << items;
      const auto buffer = test::shared_buffer(shared_, type, {items});
      buffer.copy_(own);
      ASSERT_TRUE(same_bits(reduced(shared_, buffer), want)) << type << " of " << items << ", in place";
    }
  }
}

TEST_F(SharedSums, HaveGloosBitsForEachOperationAndType) {
  for (const auto type :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kByte, at::kChar, at::kInt, at::kLong}) {
    if (!is_as_in_gloo(type)) continue;
    for (const auto op : {ReduceOp::SUM, ReduceOp::PRODUCT, ReduceOp::MIN, ReduceOp::MAX}) {
      for (const int64_t items : {5, 20'011}) {
        const auto own = with_nans(items, type);
        ASSERT_TRUE(same_bits(reduced(shared_, own.clone(), op), reduced(gloo_, own.clone(), op)))
            << type << " operation " << int(op) << " of " << items;
      }
    }
  }
}

TEST_F(SharedSums, HaveGloosBitsInOneMessageOfMany) {
  std::vector<at::Tensor> ours, theirs;
  for (const int64_t items : {1, 700, 33, 50'000}) ours.push_back(with_nans(items, at::kFloat, 3));
  ours.push_back(with_nans(600, at::kFloat, 4).view({20, 30}).t());
  for (const auto& tensor : ours) theirs.push_back(tensor.clone());
  shared_->allreduce_coalesced(ours)->wait();
  gloo_->allreduce_coalesced(theirs)->wait();
  for (size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(same_bits(ours[i], theirs[i])) << i;
}

// Transposed and channels_last: in the order of memory. With gaps: gloo would take them for dense.
TEST_F(SharedSums, HaveGloosBitsInOtherLayouts) {
  const auto transposed = with_nans(201 * 300, at::kFloat).view({201, 300}).t();
  const auto last =
      with_nans(8 * 3 * 40 * 40, at::kFloat).view({8, 3, 40, 40}).contiguous(at::MemoryFormat::ChannelsLast);
  for (const auto& own : {transposed, last})
    EXPECT_TRUE(same_bits(reduced(shared_, own.clone()), reduced(gloo_, own.clone()))) << own.strides();
  const auto gaps = with_nans(2 * 60'000, at::kFloat).view({-1, 2}).select(1, 0);
  const auto want = reduced(gloo_, gaps.contiguous());
  EXPECT_TRUE(same_bits(reduced(shared_, gaps), want));
}

TEST_F(SharedSums, HaveGloosBitsOfComplexNumbers) {
  for (const int64_t items : {1, 129, 50'001}) {
    for (const auto op : {ReduceOp::SUM, ReduceOp::AVG}) {
      const auto own = at::view_as_complex(with_nans(2 * items * world(), at::kFloat).view({-1, 2}));
      EXPECT_TRUE(same_bits(reduced(shared_, own.clone(), op), reduced(gloo_, own.clone(), op))) << items;
      std::vector<at::Tensor> ours = {own.clone()}, theirs = {own.clone()};
      shared_->reduce(ours, {.reduceOp = op})->wait();
      gloo_->reduce(theirs, {.reduceOp = op})->wait();
      EXPECT_TRUE(same_bits(ours[0], own_rank() == 0 ? theirs[0] : own)) << items;
      auto whole = own.clone(), part = at::empty({items}, at::kComplexFloat), want = part.clone();
      base::own_reduce_scatter_single(*shared_, part, whole, c10d::ReduceScatterOptions{.reduceOp = op})
          ->wait();
      base::own_reduce_scatter_single(*gloo_, want, whole, c10d::ReduceScatterOptions{.reduceOp = op})
          ->wait();
      EXPECT_TRUE(same_bits(part, want)) << items;
    }
  }
}

TEST_F(SharedSums, HaveGloosBitsInParts) {
  for (const int64_t items : {1, 129, 20'011}) {
    auto whole = with_nans(items * world(), at::kFloat), part = at::empty({items}), want = at::empty({items});
    base::own_reduce_scatter_single(*shared_, part, whole)->wait();
    base::own_reduce_scatter_single(*gloo_, want, whole)->wait();
    ASSERT_TRUE(same_bits(part, want)) << items;
  }
}

TEST_F(SharedSums, OfSparseTensorsAreGloos) {
  const auto sparse = [] {
    const auto at = at::tensor({int64_t(own_rank()), int64_t(world())}).view({1, 2});
    return at::sparse_coo_tensor(at, at::ones({2}), {world() + 1});
  };
  std::vector<at::Tensor> ours = {sparse()}, theirs = {sparse()};
  shared_->allreduce(ours)->wait();
  gloo_->allreduce(theirs)->wait();
  EXPECT_TRUE(at::equal(ours[0].to_dense(), theirs[0].to_dense()));
  EXPECT_EQ(ours[0].to_dense()[world()].item<float>(), float(world()));
}

class Shared : public ::testing::Test {
 protected:
  ProcessGroup group_ = test::open("shared");
};

// c10d's collectives do not wait for other ranks in the call, and programs count on that.
TEST_F(Shared, ASumGoesOnBehindTheCallWhereAnotherRankIsLate) {
  if (world() == 1) GTEST_SKIP() << "needs two ranks";
  std::vector<at::Tensor> sum = {at::full({50'000}, float(own_rank() + 1))}, word = {at::zeros({4})};
  c10::intrusive_ptr<c10d::Work> later;
  if (own_rank() == 0) {
    later = group_->allreduce(sum);
    for (int rank = 1; rank < world(); ++rank) group_->send(word, rank, 7)->wait();
  } else {
    group_->recv(word, 0, 7)->wait();
    later = group_->allreduce(sum);
  }
  std::vector<at::Tensor> next = {at::ones({10})};
  group_->allreduce(next)->wait();
  EXPECT_TRUE(later->isCompleted()) << "what began first ends first";
  later->wait();
  EXPECT_EQ(sum[0][49'999].item<float>(), float(world() * (world() + 1)) / 2);
  EXPECT_EQ(next[0][9].item<float>(), float(world()));
}

// A rank that spins there takes the time of the one it waits for.
TEST_F(Shared, RanksOnOneCoreDoNotSpin) {
  if (world() > int(std::thread::hardware_concurrency())) GTEST_SKIP() << "they sleep anyway";
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  const auto core = reduced(group_, at::full({1}, ::sched_getcpu()), ReduceOp::MIN).item<int>();
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  const auto tensor = at::ones({20'000});
  reduced(group_, tensor);
  const auto begin = std::clock();
  for (int i = 0; i < 100; ++i) reduced(group_, tensor);
  EXPECT_LT(1e4 * double(std::clock() - begin) / CLOCKS_PER_SEC, 70) << "microseconds of the processor";
  ::sched_setaffinity(0, sizeof before, &before);
}

TEST_F(Shared, AGroupMayEndWhileASumWaits) {
  std::vector<at::Tensor> tensors = {at::ones({5})};
  if (own_rank() == world() - 1) std::this_thread::sleep_for(30ms);
  const auto work = group_->allreduce(tensors);
  group_ = {};
  work->wait();
  EXPECT_EQ(tensors[0][0].item<float>(), float(world()));
}

// Nobody's numbers are touched by ranks that mean different ones.
TEST_F(Shared, CallsThatDifferAreAnErrorThatSaysWhatEachRankCalled) {
  if (world() == 1) GTEST_SKIP() << "needs two ranks";
  const int last = world() - 1;
  const bool odd = own_rank() == last;
  const auto all_reduce = [](ProcessGroup& group, int64_t items) {
    std::vector<at::Tensor> tensors = {at::ones({items})};
    group->allreduce(tensors)->wait();
  };
  const auto fails = [&](const auto& call, const std::string& usual, const std::string& other) {
    auto group = test::open("shared");
    all_reduce(group, 4);
    const auto text = test::error_of([&] {
      call(group);
      all_reduce(group, 4);  // who waits for nobody in a call hears of it in the next
    });
    EXPECT_NE(text.find("the ranks' calls differ: rank"), std::string::npos) << text;
    const auto both = " calls " + usual + ", but rank " + std::to_string(last) + " calls " + other;
    EXPECT_NE(text.find(both), std::string::npos) << text << both;
    EXPECT_TRUE(comm::is_dead(group));
    test::runtime().barrier();
  };
  fails([&](auto& group) { all_reduce(group, odd ? 5 : 10); }, "all-reduce (sum) of 40 bytes of Float",
        "all-reduce (sum) of 20 bytes of Float");
  fails([&](auto& group) { all_reduce(group, odd ? 500'000 : 10); }, "all-reduce (sum) of 40 bytes of Float",
        "all-reduce (sum) of 2000000 bytes of Float");
  fails(
      [&](auto& group) {
        std::vector<at::Tensor> tensors = {at::ones({10})};
        odd ? group->broadcast(tensors)->wait() : group->allreduce(tensors)->wait();
      },
      "all-reduce (sum) of 40 bytes of Float", "broadcast with root 0 of 40 bytes of Float");
  fails([&](auto& group) { odd ? group->barrier()->wait(), void() : all_reduce(group, 10); },
        "all-reduce (sum) of 40 bytes of Float", "barrier");
}

TEST_F(Shared, WhoseMateHasGivenUpWaitsNoLonger) {
  if (world() < 3) GTEST_SKIP() << "needs one that gives up, one that waits, and one that does not come";
  const auto start = std::chrono::steady_clock::now();
  if (own_rank() < world() - 1) {
    std::vector<at::Tensor> tensors = {at::ones({10})};
    c10d::AllreduceOptions options;
    if (own_rank() == 0) options.timeout = 300ms;
    const auto text = test::error_of([&] { group_->allreduce(tensors, options)->wait(); });
    EXPECT_NE(text.find("did not call it"), std::string::npos) << text;
    EXPECT_LT(std::chrono::steady_clock::now() - start, 50s) << "the group's own timeout is 60 s";
  }
  test::runtime().barrier();
}

TEST_F(Shared, ACallbackMayCallAndWait) {
  std::vector<at::Tensor> first = {at::ones({3})}, second = {at::ones({4})};
  if (own_rank() == world() - 1) std::this_thread::sleep_for(20ms);
  std::promise<float> found;
  group_->allreduce(first)->getFuture()->addCallback([&](c10::ivalue::Future&) {
    group_->allreduce(second)->wait();
    found.set_value(second[0][3].item<float>());
  });
  EXPECT_EQ(found.get_future().get(), float(world()));
  group_->barrier()->wait();
}

TEST_F(Shared, ABarrierWaitsForWhatWentOverGloo) {
  std::vector<at::Tensor> sparse = {at::ones({2}).to_sparse()};
  if (own_rank() == 0) std::this_thread::sleep_for(20ms);
  const auto work = group_->allreduce(sparse);
  group_->barrier()->wait();
  EXPECT_TRUE(work->isCompleted());
}

TEST_F(Shared, LeavesNoNamesBehind) {
  const auto own = [] {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm"))
      if (entry.path().filename().string().find("lockstep-") == 0) names.push_back(entry.path());
    return names;
  };
  test::runtime().barrier();
  for (const auto& name : own())
    EXPECT_EQ(name.find("-" + std::to_string(::getpid()) + "-"), std::string::npos) << name;
  test::runtime().barrier();
}

}  // namespace
}  // namespace lockstep
