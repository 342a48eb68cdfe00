// The pure parts of what ranks find out together: sums, lines, clocks, NCCL's own words.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <condition_variable>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "temp_folder.h"
#include "tools/doctor/job/clocks.h"
#include "tools/doctor/job/nccl.h"
#include "tools/doctor/job/pairs.h"
#include "tools/doctor/job/sums.h"

namespace lockstep::doctor {
namespace {

at::Tensor sum_of(int64_t items, int round, int world) {
  auto sum = at::zeros({items});
  for (int rank = 0; rank < world; ++rank) sum.add_(numbers_of(items, round, rank));
  return sum;
}

TEST(Sums, TheRightOneHasNoFault) {
  for (const int world : {1, 2, 5}) EXPECT_EQ(fault_in(sum_of(1000, 3, world), 3, world), "");
}

TEST(Sums, OneChangedBitIsFoundAndPlaced) {
  auto sum = sum_of(1000, 0, 4);
  sum[777] += 1;
  EXPECT_NE(fault_in(sum, 0, 4).find("number 777 of 1000"), std::string::npos) << fault_in(sum, 0, 4);
}

TEST(Sums, AMissingRankAndAnotherRoundsSumAreFound) {
  EXPECT_NE(fault_in(sum_of(1000, 0, 3), 0, 4), "");
  EXPECT_NE(fault_in(sum_of(1000, 0, 4), 1, 4), "");
  auto not_a_number = sum_of(10, 0, 2);
  not_a_number[3] = std::nan("");
  EXPECT_NE(fault_in(not_a_number, 0, 2), "");
}

TEST(Sums, BusBandwidthIsThatOfNccl) {
  EXPECT_DOUBLE_EQ(bus_bandwidth(1000, 1, 2), 1000);
  EXPECT_DOUBLE_EQ(bus_bandwidth(1000, 2, 4), 750);
}

TEST(Pairs, FewNodesMeetEachOtherAndEachRankItsNodesFirst) {
  EXPECT_EQ(pairs_to_time({0, 0, 1, 1}), (std::vector<Pair>{{0, 2}, {0, 1}, {2, 3}}));
  const auto pairs = pairs_to_time({0, 1, 2, 3, 4});
  EXPECT_EQ(std::set<Pair>(pairs.begin(), pairs.end()).size(), 10U);
  EXPECT_EQ(pairs.size(), 10U);
}

TEST(Pairs, ManyNodesMeetTheirNeighboursAlone) {
  std::vector<int> nodes(100);
  for (size_t i = 0; i < nodes.size(); ++i) nodes[i] = static_cast<int>(i);
  const auto pairs = pairs_to_time(nodes);
  EXPECT_EQ(pairs.size(), 100U);
  std::map<int, int> lines;
  for (const auto& [low, high] : pairs) ++lines[low], ++lines[high];
  for (const auto& [rank, count] : lines) EXPECT_EQ(count, 2) << rank;
}

// Queues between threads.
class Queues {
 public:
  void put(int from, int to, size_t bytes) {
    const std::lock_guard lock(mutex_);
    queues_[{from, to}].push_back(bytes);
    changed_.notify_all();
  }
  void take(int from, int to) {
    std::unique_lock lock(mutex_);
    auto& queue = queues_[{from, to}];
    ASSERT_TRUE(changed_.wait_for(lock, std::chrono::seconds(20), [&] { return !queue.empty(); }));
    queue.pop_front();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Pair, std::deque<size_t>> queues_;
};

class Threaded : public Messenger {
 public:
  Threaded(Queues& queues, int rank, int world) : queues_(queues), rank_(rank), world_(world) {}
  int rank() const override { return rank_; }
  int world() const override { return world_; }
  int node_of(int rank) const override { return rank / 2; }

 protected:
  void transfer(std::span<const Outgoing> out, std::span<const Incoming> in) override {
    for (const auto& one : out) queues_.put(rank_, one.to, one.bytes.size());
    for (const auto& one : in) queues_.take(one.from, rank_);
  }

 private:
  Queues& queues_;
  int rank_, world_;
};

TEST(Pairs, NobodyWaitsInACircleAndEachIsTimedOnce) {
  constexpr int kWorld = 7;
  Queues queues;
  std::mutex mutex;
  std::vector<PairTime> all;
  std::vector<std::thread> ranks;
  std::vector<int> nodes = {0, 0, 1, 1, 2, 2, 3};
  for (int rank = 0; rank < kWorld; ++rank) {
    ranks.emplace_back([&, rank] {
      Threaded messenger(queues, rank, kWorld);
      const auto own = unpack_pairs(pack(time_pairs(messenger, pairs_to_time(nodes))));
      const std::lock_guard lock(mutex);
      all.insert(all.end(), own.begin(), own.end());
    });
  }
  for (auto& rank : ranks) rank.join();
  EXPECT_EQ(all.size(), pairs_to_time(nodes).size());
  for (const auto& time : all) {
    EXPECT_EQ(time.across,
              nodes[static_cast<size_t>(time.pair.first)] != nodes[static_cast<size_t>(time.pair.second)]);
    EXPECT_GT(time.bytes_second, 0);
  }
}

PairTime line(int low, int high, double latency, double speed) {
  return {{low, high}, true, latency, speed};
}

const std::vector<std::string> kHosts = {"n0", "n1", "n2", "n3"};

TEST(Pairs, EvenLinesAreFine) {
  const auto findings =
      judge_pairs({line(0, 1, 2e-5, 2e9), line(0, 2, 3e-5, 1e9), line(1, 2, 2e-5, 2e9)}, kHosts);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].verdict, FindingLevel::ok);
  EXPECT_NE(findings[0].says.find("rank 0 (n0) and rank 2 (n2): 30 us, 1.0 GB/s"), std::string::npos)
      << findings[0].says;
}

TEST(Pairs, OneSlowLineIsNamed) {
  const auto findings =
      judge_pairs({line(0, 1, 2e-5, 5e9), line(0, 2, 2e-5, 1e8), line(1, 2, 2e-5, 5e9)}, kHosts);
  EXPECT_EQ(findings.at(0).verdict, FindingLevel::warning);
  EXPECT_NE(findings[0].says.find("between rank 0 (n0) and rank 2 (n2): 20 us, 100.0 MB/s"),
            std::string::npos)
      << findings[0].says;
}

TEST(Pairs, ARankWhoseLinesAreAllSlowIsNamed) {
  const auto findings = judge_pairs({line(0, 1, 2e-5, 5e9), line(0, 2, 2e-5, 5e9), line(1, 2, 2e-5, 5e9),
                                     line(0, 3, 2e-2, 5e9), line(1, 3, 2e-2, 5e9), line(2, 3, 2e-2, 5e9)},
                                    kHosts);
  EXPECT_EQ(findings.at(0).verdict, FindingLevel::warning);
  EXPECT_NE(findings[0].says.find("all of rank 3 (n3)'s lines are slow"), std::string::npos)
      << findings[0].says;
}

TEST(Pairs, AnOldEthernetIsNamedWhereItIsTheOnlyLine) {
  const auto findings = judge_pairs({line(0, 1, 1e-4, 1.1e8)}, kHosts);
  EXPECT_EQ(findings.at(0).verdict, FindingLevel::warning);
  EXPECT_NE(findings[0].remedy.find("1 Gbit/s"), std::string::npos);
}

TEST(Clocks, AreComparedWithABound) {
  // the rank's clock is 500 ahead; an exchange takes 10
  const auto reading = base::compare_rounds({{100, 110}, {200, 230}}, {{601, 610}, {700, 728}});
  EXPECT_NEAR(reading.ahead, 500, reading.error);
  EXPECT_LE(reading.error, 10);
  const auto rounds = unpack_rounds(pack({{1'700'000'000'000'000'001, 2}, {3, -4}}));
  ASSERT_EQ(rounds.size(), 2U);
  EXPECT_EQ(rounds[0].before, 1'700'000'000'000'000'001);
  EXPECT_EQ(rounds[1].after, -4);
}

TEST(Clocks, WhatIsNotCertainIsNotToldOf) {
  EXPECT_EQ(judge_clocks({{1, "n1", 0.001, 0.001}}).at(0).verdict, FindingLevel::ok);
  EXPECT_EQ(judge_clocks({{1, "n1", 2, 1.5}}).at(0).verdict, FindingLevel::ok) << "may be half a second";
  const auto off = judge_clocks({{1, "n1", 0.01, 0.01}, {2, "n2", -5, 0.1}});
  EXPECT_EQ(off.at(0).verdict, FindingLevel::warning);
  EXPECT_NE(off[0].says.find("rank 2 (host n2) is 5.0 s behind rank 0's, give or take 100.0 ms"),
            std::string::npos)
      << off[0].says;
  EXPECT_EQ(judge_clocks({{1, "n1", 90, 0.1}}).at(0).verdict, FindingLevel::failure);
}

constexpr const char* kLog = R"(n1:7:7 [0] NCCL INFO NET/Plugin: No plugin found (libnccl-net.so)
n1:7:9 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.5<0>
n1:7:9 [0] NCCL INFO Using network Socket
n1:7:9 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0
n1:7:9 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via P2P/CUMEM
)";

TEST(Nccl, ItsLogTellsNetworkAndTransport) {
  Nccl nccl;
  read_log(kLog, nccl);
  EXPECT_EQ(nccl.network, "Socket");
  EXPECT_EQ(nccl.transport, "NET/Socket/0, P2P/CUMEM");
  read_log("", nccl = {});
  EXPECT_EQ(nccl.network, "");
}

// Of the environment; "unset" where there is none.
std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "unset";
}

TEST(Nccl, ItsLogIsReadWhateverPeopleAskedForAndTheirsIsThereAgain) {
  for (const char* level : {"WARN", "VERSION", "INFO"}) {
    ::setenv("NCCL_DEBUG", level, 1);
    ::setenv("NCCL_DEBUG_SUBSYS", "COLL", 1);
    std::string path;
    {
      const NcclLog log;
      path = variable("NCCL_DEBUG_FILE");
      EXPECT_EQ(variable("NCCL_DEBUG"), "INFO");
      EXPECT_EQ(variable("NCCL_DEBUG_SUBSYS"), "unset");
      std::ofstream(path) << kLog;
      EXPECT_EQ(log.text(), kLog);
    }
    EXPECT_EQ(variable("NCCL_DEBUG"), level);
    EXPECT_EQ(variable("NCCL_DEBUG_SUBSYS"), "COLL");
    EXPECT_EQ(variable("NCCL_DEBUG_FILE"), "unset");
    EXPECT_FALSE(std::filesystem::exists(path));
  }
  ::unsetenv("NCCL_DEBUG");
  ::unsetenv("NCCL_DEBUG_SUBSYS");
}

TEST(Nccl, SocketsBesideAFabricAreAWarning) {
  Nccl nccl;
  read_log(kLog, nccl);
  EXPECT_EQ(judge_nccl(nccl, 2).at(0).verdict, FindingLevel::ok) << "there is nothing better";
  nccl.fabric = {"mlx5_0"};
  EXPECT_EQ(judge_nccl(nccl, 1).at(0).verdict, FindingLevel::ok) << "one node needs no network";
  const auto findings = judge_nccl(nccl, 2);
  EXPECT_EQ(findings.at(0).verdict, FindingLevel::warning);
  EXPECT_NE(findings[0].says.find("mlx5_0"), std::string::npos);
}

TEST(Nccl, VersionsAreReadInBothNumberings) {
  EXPECT_EQ(nccl_version_text(22703), "2.27.3");
  EXPECT_EQ(nccl_version_text(2708), "2.7.8");
}

TEST(Nccl, TheFabricIsWhatTheKernelShows) {
  const test::TempFolder folder_of_test;
  const auto& root = folder_of_test.path();
  for (const char* folder : {"infiniband/mlx5_1", "infiniband/mlx5_0", "net/eth0", "net/hsn0", "cxi/cxi0"})
    std::filesystem::create_directories(root / folder);
  EXPECT_EQ(fabric_here(root.string()), (std::vector<std::string>{"mlx5_0", "mlx5_1", "cxi0", "hsn0"}));
  EXPECT_TRUE(fabric_here((root / "none").string()).empty());
}

}  // namespace
}  // namespace lockstep::doctor
