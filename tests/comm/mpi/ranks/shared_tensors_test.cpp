// Tensors in shared memory: the bits of any other, whoever brings what, and memory that goes with them.
#include "comm/ranks/shared_buffer.h"

#include <fstream>

#include "comm/mpi/ranks/nodes.h"

namespace lockstep {
namespace {

using c10d::ReduceOp;
using test::fractions;
using test::own_rank;
using test::reduced;
using test::world;

constexpr auto kDdpTypes = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
// one element; around the size that is copied all the same; odd; just over a slot, and several
constexpr std::array<int64_t, 6> kSizes = {1, 8192, 8193, 20'011, 262'145, 432'538};

// Segments in /dev/shm that this process maps.
size_t mapped() {
  size_t count = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("/dev/shm/lockstep-") != std::string::npos) ++count;
  return count;
}

// Parameter: the ranks of a (pretended) node; 0 is all on one.
class SharedTensors : public ::testing::TestWithParam<int> {
 protected:
  // The ranks of this one's node.
  int mates() const {
    const int node = GetParam() == 0 ? world() : GetParam();
    return std::min(node, world() - own_rank() / node * node);
  }

 private:
  test::PretendNodes pretend_{GetParam()};

 protected:
  ProcessGroup group_ = test::open("mpi");
};

TEST_P(SharedTensors, AreWhereEveryRankOfTheNodeMapsThem) {
  const size_t before = mapped();
  const at::Tensor buffer = test::shared_buffer(group_, at::kFloat, {20'000});
  EXPECT_TRUE(at::equal(buffer, at::zeros({20'000})));
  EXPECT_EQ(mapped() - before, mates() > 1 ? size_t(mates()) : 0);
}

TEST_P(SharedTensors, HaveTheBitsOfRankOrder) {
  for (const auto type : kDdpTypes) {
    for (const int64_t items : kSizes) {
      const at::Tensor input = fractions(items, type);
      const at::Tensor buffer = test::shared_buffer(group_, type, {items});
      for (int again = 0; again < 2; ++again) {
        buffer.copy_(input);
        ASSERT_TRUE(at::equal(reduced(group_, buffer), reduced(group_, input.clone())))
            << type << " " << items;
      }
      ASSERT_TRUE(at::equal(buffer, test::sum_in_order(group_, input, GetParam()))) << type << " " << items;
    }
  }
}

TEST_P(SharedTensors, EveryOperation) {
  const at::Tensor input = fractions(30'001, at::kFloat),
                   buffer = test::shared_buffer(group_, at::kFloat, {30'001});
  for (const auto op : {ReduceOp::MIN, ReduceOp::MAX, ReduceOp::PRODUCT, ReduceOp::AVG}) {
    buffer.copy_(input);
    EXPECT_TRUE(at::equal(reduced(group_, buffer, op), reduced(group_, input.clone(), op))) << int(op);
  }
}

TEST_P(SharedTensors, APartIsSummedAndTheRestStays) {
  const at::Tensor buffer = test::shared_buffer(group_, at::kFloat, {100'000});
  const at::Tensor input = fractions(100'000, at::kFloat);
  buffer.copy_(input);
  reduced(group_, buffer.slice(0, 777, 60'000));
  EXPECT_TRUE(at::equal(buffer.slice(0, 777, 60'000), reduced(group_, input.slice(0, 777, 60'000).clone())));
  EXPECT_TRUE(at::equal(buffer.slice(0, 0, 777), input.slice(0, 0, 777)));
  EXPECT_TRUE(at::equal(buffer.slice(0, 60'000), input.slice(0, 60'000)));
}

TEST_P(SharedTensors, ARankMayBringMemoryOfItsOwn) {
  const at::Tensor input = fractions(150'000, at::kFloat);
  const at::Tensor want = reduced(group_, input.clone());
  const at::Tensor buffer = test::shared_buffer(group_, at::kFloat, {150'000});
  for (int other = 0; other < world(); ++other) {
    const at::Tensor brought = own_rank() == other ? at::empty({150'000}) : buffer;
    brought.copy_(input);
    ASSERT_TRUE(at::equal(reduced(group_, brought), want)) << "rank " << other << " brings its own";
  }
}

TEST_P(SharedTensors, MemoryGoesWithItsTensors) {
  const size_t before = mapped();
  at::Tensor buffer;
  for (int round = 0; round < 20; ++round) {
    buffer = at::Tensor();
    buffer = test::shared_buffer(group_, at::kFloat, {50'000 - round});
  }
  EXPECT_EQ(mapped() - before, mates() > 1 ? size_t(mates()) : 0);
}

TEST_P(SharedTensors, OutliveTheirGroup) {
  const at::Tensor buffer = test::shared_buffer(group_, at::kFloat, {50'000}).fill_(3);
  group_->barrier()->wait();
  group_ = {};
  EXPECT_EQ(buffer.sum().item<float>(), 150'000);
}

TEST_P(SharedTensors, ThousandsAmongOtherCollectives) {
  const at::Tensor buffer = test::shared_buffer(group_, at::kFloat, {8'200});
  for (int i = 0; i < 1000; ++i) {
    buffer.fill_(float(own_rank() + i));
    reduced(group_, buffer);
    const int sum = world() * (world() - 1) / 2 + world() * i;
    ASSERT_EQ(buffer[8'199].item<float>(), float(sum));
    ASSERT_EQ(buffer[0].item<float>(), float(sum));
    if (i % 3 == 0) reduced(group_, at::ones({i + 1}));
    if (i % 7 == 0) group_->barrier()->wait();
  }
}

INSTANTIATE_TEST_SUITE_P(Nodes, SharedTensors, ::testing::Values(0, 1, 2), [](const auto& info) {
  return info.param == 0 ? std::string("OneNode") : std::to_string(info.param) + "ANode";
});

TEST(SharedTensorsOf, AGroupThatCannotShareStayPlain) {
  auto gloo = test::open("gloo");
  const at::Tensor buffer = test::shared_buffer(gloo, at::kFloat, {20'000});
  reduced(gloo, buffer.fill_(1));
  EXPECT_EQ(buffer[0].item<float>(), float(world()));
  EXPECT_EQ(test::shared_buffer({}, at::kFloat, {3}).numel(), 3);
}

}  // namespace
}  // namespace lockstep
