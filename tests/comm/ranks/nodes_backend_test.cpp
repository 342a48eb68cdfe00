// Sums over several nodes, which are pretended here: gloo's bits, whichever ranks share a node.
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include <future>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/comm/algorithms/message_runner.h"
#include "lockstep/comm/gloo_group.h"
#include "lockstep/comm/rendezvous/join.h"
#include "lockstep/comm/shared_backend.h"
#include "world.h"

namespace lockstep {
namespace {

using namespace std::chrono_literals;
using c10d::ReduceOp;
using test::numbers;
using test::own_rank;
using test::same_bits;
using test::world;
using BackendPtr = c10::intrusive_ptr<c10d::Backend>;

class OverNodes : public ::testing::Test {
 protected:
  void SetUp() override {
    if (world() == 1) GTEST_SKIP() << "one rank is on one node";
  }

  // The nodes of the ranks, as a digit each.
  static std::vector<comm::Peer> pretended(const std::string& nodes) {
    auto peers = comm::introduce(test::runtime());
    for (auto& peer : peers) peer.node = nodes[static_cast<size_t>(peer.rank)] - '0';
    return peers;
  }

  static std::vector<std::string> layouts() {
    if (world() == 2) return {"01"};
    if (world() == 3) return {"001", "011", "010"};
    if (world() == 4) return {"0011", "0001", "0111", "0012", "0122", "0112", "0101", "0110", "0123"};
    const auto half = static_cast<size_t>(world()) / 2, rest = static_cast<size_t>(world()) - half;
    return {std::string(half, '0') + std::string(rest, '1'),
            "01" + std::string(half, '2') + std::string(rest - 2, '3')};
  }

  // A group of its own on the same store: gloo, and what stands over it.
  struct Opened {
    BackendPtr gloo, shared;
  };

  static Opened open(
      const std::string& nodes, std::chrono::milliseconds timeout = 60s,
      const std::function<void(std::vector<comm::Peer>&)>& change = [](auto&) {}) {
    static int opened = 0;
    const LaunchOptions options{.backend = "shared", .timeout = timeout};
    const auto store = c10::make_intrusive<c10d::PrefixStore>("nodes-test/" + std::to_string(opened++),
                                                              comm::open_store(test::runtime(), 20s));
    auto peers = pretended(nodes);
    change(peers);
    const auto monitor = std::make_shared<comm::PeerMonitor>(store, std::move(peers), own_rank());
    auto gloo = comm::make_gloo(store, test::runtime().job(), options, monitor);
    const Opened found = {gloo, comm::make_shared_backend(gloo, monitor, 20s, timeout)};
    wait_for_all(*store);
    return found;
  }

  // Who leaves before another one has opened takes its connection away; and some tests have nothing to do.
  static void wait_for_all(c10d::Store& store) {
    std::vector<std::string> keys;
    for (int rank = 0; rank < world(); ++rank) keys.push_back("opened/" + std::to_string(rank));
    store.set(keys[static_cast<size_t>(own_rank())], std::vector<uint8_t>{1});
    store.wait(keys, 60s);
  }

  // Where ranks share a node, as in all of layouts() but that of two ranks.
  static void expect_in_memory(const Opened& group, const std::string& nodes) {
    const bool follow = std::is_sorted(nodes.begin(), nodes.end());
    const bool share = std::adjacent_find(nodes.begin(), nodes.end()) != nodes.end();
    EXPECT_EQ(group.shared->getBackendName(), follow && share ? "shared" : "gloo") << nodes;
  }

  static at::Tensor reduced(c10d::Backend& backend, const at::Tensor& own,
                            ReduceOp::RedOpType op = ReduceOp::SUM) {
    std::vector<at::Tensor> tensors = {own.clone()};
    c10d::AllreduceOptions options;
    options.reduceOp = op;
    backend.allreduce(tensors, options)->wait();
    return tensors[0];
  }
};

TEST_F(OverNodes, SumsHaveGloosBitsWhicheverRanksShareANode) {
  for (const auto& nodes : layouts()) {
    const auto group = open(nodes);
    expect_in_memory(group, nodes);
    const int64_t longest = int64_t{4096} * world();  // longer ones are gloo's
    for (const int64_t items : {int64_t{0}, int64_t{1}, int64_t{3}, int64_t{250}, int64_t{4097}, longest - 1,
                                longest, longest + 1}) {
      const auto own = numbers(items, at::kFloat);
      EXPECT_TRUE(same_bits(reduced(*group.shared, own), reduced(*group.gloo, own)))
          << items << " items, nodes " << nodes;
    }
  }
}

TEST_F(OverNodes, EveryTypeAndOperationHasGloosBits) {
  const auto group = open(layouts()[0]);
  for (const auto type :
       {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kInt, at::kLong, at::kByte, at::kChar}) {
    for (const auto op : {ReduceOp::SUM, ReduceOp::PRODUCT, ReduceOp::MIN, ReduceOp::MAX}) {
      const auto own = numbers(5003, type);
      EXPECT_TRUE(same_bits(reduced(*group.shared, own, op), reduced(*group.gloo, own, op)))
          << type << " operation " << static_cast<int>(op);
    }
  }
}

TEST_F(OverNodes, ABarrierComesAfterTheSumsBeforeIt) {
  const auto group = open(layouts()[0]);
  for (int round = 0; round < 20; ++round) {
    std::vector<at::Tensor> sum = {at::ones({1000})};
    const auto work = group.shared->allreduce(sum, {});
    group.shared->barrier({})->wait();
    EXPECT_EQ(sum[0][999].item<float>(), world());
  }
}

TEST_F(OverNodes, ACallbackMayMakeASum) {
  const auto group = open(layouts()[0]);
  std::vector<at::Tensor> first = {at::ones({10})}, second = {at::ones({20})};
  auto future = group.shared->allreduce(first, {})->getFuture();
  const auto after = future->then(
      [&](c10::ivalue::Future&) {
        group.shared->allreduce(second, {})->wait();
        return c10::IValue(1);
      },
      c10::IntType::get());
  after->wait();
  EXPECT_EQ(second[0][19].item<float>(), world());
}

TEST_F(OverNodes, ANodeWithoutSharedMemoryMakesAllTakeGloo) {
  if (world() == 2) GTEST_SKIP() << "a node of two ranks and another one are three";
  const auto group = open(layouts()[0], 60s, [](auto& peers) { peers[0].host = "a container"; });
  EXPECT_EQ(group.shared->getBackendName(), "gloo");
  EXPECT_TRUE(same_bits(reduced(*group.shared, at::ones({5})), at::full({5}, float(world()))));
}

TEST_F(OverNodes, ImagesInChannelsLastAreSummedInTheOrderOfMemory) {
  const auto group = open(layouts()[0]);
  const auto own =
      numbers(2 * 3 * 5 * 7, at::kFloat).view({2, 3, 5, 7}).contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(same_bits(reduced(*group.shared, own), reduced(*group.gloo, own)));
}

// Two of gloo's threads may wait for each other where a rank has died.
TEST_F(OverNodes, MessagesThatGlooNeverEndsAreGivenUp) {
  const auto group = open(layouts()[0]);
  group.gloo->barrier({})->wait();
  auto& runner = dynamic_cast<comm::MessageRunner&>(*group.gloo);
  const comm::Collective collective{"all-reduce", 2, 60s};
  std::promise<void> begun, stuck;
  std::promise<std::string> given_up;
  std::thread other([&] {
    runner.run_messages(
        collective,
        [&](Messenger&) {
          begun.set_value();
          stuck.get_future().wait();
        },
        [&](const std::exception_ptr& error) {
          given_up.set_value(test::error_of([&] { std::rethrow_exception(error); }));
        });
  });
  begun.get_future().wait();
  test::runtime().all_gather("");  // nobody leaves before
  dynamic_cast<comm::MonitoredBackend&>(*group.gloo)
      .shared_monitor()
      ->diagnose(collective, "a line broke", false);
  const auto said = given_up.get_future().get();
  EXPECT_NE(said.find("all-reduce (collective 2) failed"), std::string::npos) << said;
  stuck.set_value();
  other.join();
}

TEST_F(OverNodes, ANodesRanksThatCallUnlikeThingsAreTold) {
  if (world() == 2) GTEST_SKIP() << "a node of two ranks and another one are three";
  const auto group = open(layouts()[0], 5s);
  const auto said = test::error_of([&] { reduced(*group.shared, at::ones({own_rank() == 0 ? 3 : 4})); });
  EXPECT_NE(said.find("the ranks' calls differ"), std::string::npos) << "rank " << own_rank() << ": " << said;
}

}  // namespace
}  // namespace lockstep
