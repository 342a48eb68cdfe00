// What is said where nobody is missing: each rank is where it is, and no more is claimed.
#include "lockstep/comm/watch/peer_monitor.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <utility>

#include "lockstep/launch/process/leave.h"
#include "refusal.h"

namespace lockstep::comm {
namespace {

using c10d::OpType;

constexpr int kNobody = 2147483646;  // no process has this number

std::vector<Peer> peers_on(const std::vector<int>& nodes) {
  std::vector<Peer> peers;
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    Peer peer;
    peer.rank = static_cast<int>(rank);
    peer.node = nodes[rank];
    peer.host = "n" + std::to_string(nodes[rank]);
    peer.pid = ::getpid();
    peers.push_back(peer);
  }
  return peers;
}

// Ranks 4 and 6 of a job, on one node.
std::vector<Peer> part_of_a_job() {
  auto peers = peers_on({0, 0});
  peers[0].in_job = 4;
  peers[1].in_job = 6;
  return peers;
}

// A rank's monitor call waits for the other's: both at once.
std::pair<std::unique_ptr<PeerMonitor>, std::unique_ptr<PeerMonitor>> monitors_of_two(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<Peer>& peers) {
  std::unique_ptr<PeerMonitor> second;
  std::thread other([&] { second = std::make_unique<PeerMonitor>(store, peers, 1); });
  auto first = std::make_unique<PeerMonitor>(store, peers, 0);
  other.join();
  return {std::move(first), std::move(second)};
}

Collective all_reduce(uint64_t number) {
  return {"all-reduce", number, std::chrono::seconds(1)};
}

Fault fault_in(const std::exception_ptr& error) {
  return test::error_from<Error>([&] { std::rethrow_exception(error); }).fault();
}

// Rank r of a job whose ranks lie on these nodes begins operations[r] and waits in vain; what each then says.
std::vector<Fault> said_after_a_timeout(const std::vector<int>& nodes,
                                        const std::vector<OpType>& operations) {
  const auto peers = peers_on(nodes);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::vector<Fault> said(nodes.size());
  std::vector<std::thread> ranks;
  for (size_t rank = 0; rank < nodes.size(); ++rank) {
    ranks.emplace_back([&, rank] {
      PeerMonitor monitor(store, peers, static_cast<int>(rank));
      const auto number = monitor.begin(operations[rank]);
      store->add("begun", 1);
      while (store->add("begun", 0) < static_cast<int64_t>(nodes.size())) std::this_thread::yield();
      const auto fault = fault_in(monitor.diagnose(all_reduce(number), "", true));
      said[rank] = fault;
      store->add("said", 1);
      while (store->add("said", 0) < static_cast<int64_t>(nodes.size())) std::this_thread::yield();
    });
  }
  for (auto& rank : ranks) rank.join();
  return said;
}

std::map<int, std::string> calls_in(const Fault& fault) {
  std::map<int, std::string> calls;
  for (const auto& seen : fault.seen) calls[seen.rank] = seen.call;
  return calls;
}

class AllCame : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(AllCame, EachIsNamedWithWhatItWaitsFor) {
  const std::vector<OpType> operations = {OpType::BARRIER, OpType::BARRIER, OpType::ALLREDUCE};
  for (const auto& fault : said_after_a_timeout(GetParam(), operations)) {
    const auto& text = fault.what;
    EXPECT_TRUE(test::has(text, "every rank is in a collective, but none received a result"));
    EXPECT_TRUE(test::has(text, "in barrier (collective 1)"));
    EXPECT_TRUE(test::has(text, "in all-reduce (collective 1)"));
    EXPECT_TRUE(test::has(text, "rank 2 (host "));
    EXPECT_EQ(text.find("connection"), std::string::npos) << "nobody knows: " << text;
    EXPECT_EQ(fault.code, Code::calls_differ);
    EXPECT_EQ(fault.ranks, std::vector<int>{});
    EXPECT_EQ(fault.met_in.call, "all-reduce");
    EXPECT_EQ(fault.met_in.number, 1u);
    EXPECT_EQ(fault.met_in.waited, 1);
    const auto calls = calls_in(fault);
    const std::map<int, std::string> wanted = {{0, "barrier"}, {1, "barrier"}, {2, "all-reduce"}};
    EXPECT_EQ(calls, wanted) << text;
  }
}

// A process that Python has forked: it neither leaves the group for its parent nor reports an error for it.
TEST(PeerMonitor, AForkedProcessSpeaksForNoRank) {
  auto [own, mate] = monitors_of_two(c10::make_intrusive<c10d::HashStore>(), peers_on({0, 0}));
  const pid_t child = ::fork();
  if (child == 0) {
    const bool refuses = test::error_of([&] { own->begin(OpType::BARRIER); }) != "";
    launch::announce_end("an error");
    own.reset();
    ::_exit(refuses ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(mate->is_lost(0, 1));
  EXPECT_FALSE(mate->knows_death());
  EXPECT_EQ(own->begin(OpType::BARRIER), 1u);
}

TEST(PeerMonitorDeathTest, NcclsWatchdogEndsAProcessInWordsOfOurs) {
  const auto die = [] {
    launch::exit_on_uncaught_errors();
    PeerMonitor monitor(c10::make_intrusive<c10d::HashStore>(), peers_on({0}), 0);
    PeerMonitor part(c10::make_intrusive<c10d::HashStore>(), peers_on({0}), 0);
    part.watch_nccl("tensor/0", std::chrono::seconds(8));
    part.begin(OpType::BARRIER);
    monitor.watch_nccl("0", std::chrono::seconds(8));
    monitor.begin(OpType::ALLREDUCE);
    std::thread([] {
      throw std::runtime_error("[PG ID 1 PG GUID 0 Rank 0] Process group watchdog thread terminated");
    }).join();
  };
  EXPECT_EXIT(die(), ::testing::ExitedWithCode(1), "^error: all-reduce \\(collective 1\\) failed: ");
}

TEST(PeerMonitor, NamesWhoIsGoneWhereNcclFails) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  auto peers = peers_on({0, 0});
  peers[1].pid = kNobody;
  std::thread other([&] { static_cast<void>(new PeerMonitor(store, peers, 1)); });
  PeerMonitor monitor(store, peers, 0);
  other.join();
  monitor.begin(OpType::ALLREDUCE);
  const auto fault = fault_in(monitor.diagnose_nccl("NCCL error: remote process exited"));
  EXPECT_TRUE(
      test::has(fault.what, "all-reduce (collective 1) failed: rank 1 (host n0, pid 2147483646) has died"));
  EXPECT_EQ(fault.code, Code::rank_lost);
}

TEST(PeerMonitor, NamesAllWhoAreGoneInOneSentence) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  auto peers = peers_on({0, 0, 0});
  peers[1].pid = peers[2].pid = kNobody;
  std::thread one([&] { static_cast<void>(new PeerMonitor(store, peers, 1)); });
  std::thread other([&] { static_cast<void>(new PeerMonitor(store, peers, 2)); });
  PeerMonitor monitor(store, peers, 0);
  one.join();
  other.join();
  const auto number = monitor.begin(OpType::ALLREDUCE);
  const auto fault = fault_in(monitor.diagnose(all_reduce(number), "closed", false));
  const auto& said = fault.what;
  EXPECT_TRUE(test::has(said,
                        "rank 1 (host n0, pid 2147483646) and rank 2 (host n0, pid 2147483646) have died "
                        "before the first collective"));
  EXPECT_EQ(fault.ranks, (std::vector<int>{1, 2}));
  ASSERT_EQ(fault.seen.size(), 2u);
  EXPECT_EQ(fault.seen[1].state, "has died before the first collective");
}

TEST(PeerMonitor, AnEndThatNoCollectiveMeetsIsNamedByTheOthers) {
  for (const int nodes : {1, 2}) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    const auto peers = peers_on({0, nodes - 1});
    const auto [waits, ends] = monitors_of_two(store, peers);
    ends->publish_error("the ranks' calls differ");
    const auto number = waits->begin(OpType::ALLREDUCE);
    const auto fault = fault_in(waits->diagnose(all_reduce(number), "closed", false));
    EXPECT_TRUE(test::has(
        fault.what, "pid " + std::to_string(::getpid()) + ") reported an error: the ranks' calls differ"));
    EXPECT_EQ(fault.code, Code::rank_lost);
    EXPECT_EQ(fault.ranks, std::vector<int>{1});
  }
}

TEST(PeerMonitor, OfAPartOfTheJobNamesRanksOfTheJob) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto peers = part_of_a_job();
  const auto [waits, late] = monitors_of_two(store, peers);
  const auto number = waits->begin(OpType::ALLREDUCE);
  const auto fault = fault_in(waits->diagnose(all_reduce(number), "", true));
  EXPECT_EQ(fault.ranks, std::vector<int>{6});
  EXPECT_TRUE(test::has(fault.what, "rank 6 (host "));
  ASSERT_EQ(fault.seen.size(), 1u);
  EXPECT_EQ(fault.seen[0].rank, 6);
  EXPECT_EQ(fault.seen[0].state, "did not call collective 1, or any collective before it");
}

TEST(PeerMonitor, CallsThatDifferNameRanksOfTheJobAndTheOwnCall) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto peers = part_of_a_job();
  const auto [monitor, other_monitor] = monitors_of_two(store, peers);
  const auto number = monitor->begin(OpType::ALLREDUCE);
  monitor->begin(OpType::BROADCAST);  // under way beside it
  const Difference difference = {"the ranks' calls differ: so and so",
                                 {{.rank = 0, .call = "all-reduce"}, {.rank = 1, .call = "barrier"}}};
  const auto fault = fault_in(monitor->end_at(number, difference));
  EXPECT_EQ(fault.code, Code::calls_differ);
  EXPECT_EQ(fault.met_in.call, "all-reduce");
  EXPECT_EQ(fault.met_in.number, 1u);
  const std::map<int, std::string> wanted = {{4, "all-reduce"}, {6, "barrier"}};
  EXPECT_EQ(calls_in(fault), wanted);
  const auto dead = test::error_from<Error>([&] { monitor->require_alive(); });
  EXPECT_EQ(calls_in(dead.fault()).size(), 2u);
  EXPECT_EQ(dead.hint(), fault.hint) << "a checkpoint does not help";
}

TEST(PeerMonitor, WhoseOwnPartFailedIsNoLostRank) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  PeerMonitor alone(store, peers_on({0}), 0);
  const auto number = alone.begin(OpType::ALLREDUCE);
  const auto fault = fault_in(alone.diagnose(all_reduce(number), "sizes differ", false));
  EXPECT_EQ(fault.code, Code::failed) << fault.what;
}

TEST(PeerMonitor, WhoDidNotComeInTimeIsNamedByItsNumber) {
  for (const int nodes : {1, 2}) {
    const auto store = c10::make_intrusive<c10d::HashStore>();
    const auto peers = peers_on({0, nodes - 1});
    const auto [waits, late] = monitors_of_two(store, peers);
    const auto number = waits->begin(OpType::ALLREDUCE);
    for (int again = 0; again < 2; ++again) {  // a dead group says the same
      const auto fault = fault_in(waits->diagnose(all_reduce(number), "", true));
      EXPECT_EQ(fault.code, nodes == 1 ? Code::rank_late : Code::rank_lost) << fault.what;
      EXPECT_EQ(fault.ranks, std::vector<int>{1});
    }
    EXPECT_EQ(test::error_from<Error>([&] { waits->begin(OpType::BARRIER); }).ranks(), std::vector<int>{1})
        << "the group is dead";
  }
}

INSTANTIATE_TEST_SUITE_P(Layouts, AllCame,
                         ::testing::Values(std::vector<int>{0, 0, 0}, std::vector<int>{0, 0, 1},
                                           std::vector<int>{0, 1, 1}));

}  // namespace
}  // namespace lockstep::comm
