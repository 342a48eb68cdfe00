// What measurements between ranks mean: sums, times, networks, folders, NCCL.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "temp_folder.h"
#include "tools/doctor/rules.h"
#include "tools/doctor/session.h"

namespace lockstep::doctor {
namespace {

using namespace std::chrono_literals;

// The first finding: its level, words in it, words in its remedy.
void expect(const Findings& findings, FindingLevel level, const std::string& words = "",
            const std::string& remedy = "") {
  ASSERT_FALSE(findings.empty());
  EXPECT_EQ(findings[0].verdict, level) << findings[0].says;
  EXPECT_NE(findings[0].says.find(words), std::string::npos) << findings[0].says;
  EXPECT_NE(findings[0].remedy.find(remedy), std::string::npos) << findings[0].remedy;
}

constexpr auto kOk = FindingLevel::ok;

at::Tensor sum_of(int64_t items, int round, int world) {
  auto sum = at::zeros({items});
  for (int rank = 0; rank < world; ++rank) sum.add_(numbers_of(items, round, rank));
  return sum;
}

TEST(Sums, AWrongOneIsFound) {
  for (const int world : {1, 2, 5}) EXPECT_EQ(fault_in(sum_of(1000, 3, world), 3, world), "");
  auto sum = sum_of(1000, 0, 4);
  sum[777] += 1;
  EXPECT_NE(fault_in(sum, 0, 4).find("number 777 of 1000"), std::string::npos) << fault_in(sum, 0, 4);
  EXPECT_NE(fault_in(sum_of(1000, 0, 3), 0, 4), "") << "a rank is missing";
  EXPECT_NE(fault_in(sum_of(1000, 0, 4), 1, 4), "") << "another round's";
  sum[3] = std::nan("");
  EXPECT_NE(fault_in(sum, 0, 4), "");
}

TEST(Sums, BusBandwidthIsThatOfNccl) {
  EXPECT_DOUBLE_EQ(bus_bandwidth(1000, 1, 2), 1000);
  EXPECT_DOUBLE_EQ(bus_bandwidth(1000, 2, 4), 750);
}

TEST(Clocks, CountBeyondTheErrorOfTheMeasurement) {
  expect({clocks_finding({{1, "n1", 0.001, 0.001}})}, kOk);
  expect({clocks_finding({{1, "n1", 2, 1.5}})}, kOk, "within 3.5 s");
  expect({clocks_finding({{1, "n1", 0.01, 0.01}, {2, "n2", -5, 0.1}})}, kWarning,
         "rank 2 (host n2) is 5 s behind rank 0's (to within 100 ms)");
  expect({clocks_finding({{1, "n1", 90, 0.1}})}, kFailure);
}

TEST(Deadline, SoonOrUnknownIsAWarning) {
  const launch::Time now{};
  const Job job{.scheduler = "slurm", .job_id = "1"};
  expect({deadline_finding({}, {}, now)}, kOk);
  expect({deadline_finding(job, {}, now)}, kWarning, "unknown");
  expect({deadline_finding(job, now + 3h, now)}, kOk);
  expect({deadline_finding(job, now + 90s, now)}, kWarning, "the job ends in 1.5 min");
  expect({deadline_finding(job, now - 90s, now)}, kWarning, "in the past", "clock");
}

// --- network ---

RankNetwork network(int rank, const std::string& host_address, std::vector<comm::NetworkAddress> interfaces) {
  interfaces.push_back({"lo", "127.0.0.1", true, 8});
  const auto host = "n" + std::to_string(rank);
  return network_of({.rank = rank, .world = 2, .node_rank = rank, .nodes = 2, .host = host},
                    {host, {host_address}, std::move(interfaces), ""}, "");
}

RankNetwork network(int rank, const std::string& address) {
  return network(rank, address, {{"eth0", address, false, 24}});
}

TEST(Network, FaultsAreNamed) {
  auto first = network(0, "10.0.0.5"), second = network(1, "10.0.0.6");
  const auto good = network_findings({first, second}, 2);
  expect(good, kOk, "gloo uses eth0 on 2 nodes");
  EXPECT_NE(good[0].drawing.find("n1: eth0 10.0.0.6/24 (gloo), lo 127.0.0.1/8"), std::string::npos);
  expect(network_findings({first, network(1, "127.0.1.1", {{"eth0", "10.0.0.6", false, 24}})}, 2), kFailure,
         "rank 1: ", "eth0 (10.0.0.6)");
  first.interfaces.push_back({"hsn0", "10.9.0.5", false, 16});
  expect(network_findings({first, second}, 2), kOk);
  second.interfaces.push_back({"hsn0", "10.9.0.6", false, 16});
  expect(network_findings({first, second}, 2), kWarning, "faster hsn0", "GLOO_SOCKET_IFNAME=hsn0");
}

TEST(Network, NcclChoosesAsNcclDoes) {
  auto one = network(0, "10.0.0.5");
  one.interfaces = {{"lo", "127.0.0.1", true, 8},
                    {"docker0", "172.17.0.1", false, 16},
                    {"eth0", "10.0.0.5", false, 24},
                    {"ib0", "10.1.0.5", false, 24}};
  EXPECT_EQ(nccl_interface(one), "ib0");
  one.interfaces.pop_back();
  for (const auto& [wanted, chosen] : std::map<std::string, std::string>{
           {"", "eth0"}, {"docker", "docker0"}, {"=docker", ""}, {"^eth,lo", "docker0"}, {"ib9", ""}}) {
    one.nccl_wanted = wanted;
    EXPECT_EQ(nccl_interface(one), chosen) << wanted;
  }
  one.nccl_wanted = "ib9";
  expect(network_findings({one}, 1), kFailure, "NCCL_SOCKET_IFNAME is 'ib9'");
}

// --- folders ---

TEST(FolderView, ListsFilesAndChecksWriting) {
  const test::TempFolder folder;
  std::filesystem::create_directory(folder.path() / "raw");
  folder.write("raw/images", "12345");
  const auto file = folder.write("labels\n", "1");
  const auto view = view_of(folder.path(), Purpose::to_read, 5s);
  EXPECT_TRUE(view.problem.empty() && view.free > 0 && !view.kind.empty());
  EXPECT_EQ(view.entries, 3);
  EXPECT_EQ(view.digest, view_of(folder.path(), Purpose::to_read, 5s).digest);
  folder.write("raw/images", "123456");
  EXPECT_NE(view.digest, view_of(folder.path(), Purpose::to_read, 5s).digest) << "a file of another size";
  EXPECT_EQ(view_of(file, Purpose::to_read, 5s).entries, 1) << "data may be one file";
  EXPECT_EQ(view_of(folder / "none", Purpose::to_read, 5s).problem, "No such file or directory");
  const auto runs = view_of(folder / "a/b/runs", Purpose::to_write, 5s);
  EXPECT_EQ(runs.there + runs.problem, folder.path());
  EXPECT_EQ(view_of(file, Purpose::to_write, 5s).problem, "Not a directory");
  const auto entries = std::filesystem::directory_iterator(folder.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 2) << "nothing stays there";
}

FolderView node_view(int rank, const std::string& digest = "d") {
  return {.host = "n" + std::to_string(rank),
          .there = "/scratch/runs",
          .kind = "nfs",
          .free = 5LL << 30,
          .digest = digest};
}

TEST(Folders, FaultsOfNodesAreNamedOnceEach) {
  expect(data_findings("/d", {node_view(0), node_view(1)}), kOk);
  expect(runs_findings("/r", {node_view(0), node_view(1)}), kOk);
  expect(data_findings("/d", {node_view(0), node_view(1, "other"), node_view(2)}), kFailure,
         "other files on n1 than on n0");
  auto silent = node_view(1), second = node_view(2), third = node_view(3);
  silent.problem = kNoAnswer;
  second.problem = third.problem = "Read-only file system";
  const auto findings = runs_findings("/r", {node_view(0), silent, second, third});
  ASSERT_EQ(findings.size(), 2U);
  expect(findings, kFailure, "on n2, n3: Read-only file system");
  expect({findings[1]}, kFailure, "on n1: the file system did not answer");
  second = node_view(2);
  second.free = 3 << 20;
  expect(runs_findings("/r", {second}), kWarning, "3 MiB are free");
  second = node_view(1);
  second.there = "/scratch";
  expect(runs_findings("/scratch/runs", {node_view(0), second}), kFailure,
         "n0 has /scratch/runs, and n1 only /scratch");
}

TEST(Folders, AreSharedWithLocksThatWork) {
  const FolderAccess good{
      .host = "n1", .kind = "tmpfs", .sees_file = true, .is_seen = true, .sees_lock = true};
  const auto with = [&](void (*change)(FolderAccess&)) {
    FolderAccess access = good;
    change(access);
    return sharing_findings(node_view(0), {access});
  };
  expect(sharing_findings(node_view(0), {good}), kOk);
  expect(with([](FolderAccess& one) { one.sees_file = false; }), kFailure,
         "n1 (tmpfs) does not see what n0 writes there (nfs)");
  expect(with([](FolderAccess& one) { one.sees_lock = false; }), kFailure, "n1 got the run's lock while n0");
  expect(with([](FolderAccess& one) { one.hangs = true; }), kFailure, "did not answer in time on n1");
  expect(with([](FolderAccess& one) { one.is_seen = false; }), kFailure, "n0 does not see what n1 writes");
}

// --- NCCL ---

TEST(Nccl, SocketsBesideAFabricAreAWarning) {
  const auto log = read_nccl_log(R"(n1:7:7 [0] NCCL INFO NET/Plugin: No plugin found (libnccl-net.so)
n1:7:9 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.5<0>
n1:7:9 [0] NCCL INFO Using network Socket
n1:7:9 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0
n1:7:9 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via P2P/CUMEM
)");
  EXPECT_EQ(log.transport, "NET/Socket/0, P2P/CUMEM");
  expect({nccl_finding(log, {}, 2)}, kOk, "network Socket");
  expect({nccl_finding(log, {"mlx5_0"}, 1)}, kOk);
  expect({nccl_finding(log, {"mlx5_0"}, 2)}, kWarning, "mlx5_0");
}

}  // namespace
}  // namespace lockstep::doctor
