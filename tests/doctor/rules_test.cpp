// The table of rules, over made-up clusters: what each fault is called, and how bad it is.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "lockstep/launch/process/report.h"
#include "temp_folder.h"
#include "tools/doctor/session.h"

namespace lockstep::doctor {
namespace {

RankFacts good_rank(int local, int node, int local_world, int nodes) {
  RankFacts facts;
  facts.job = {.local_rank = local,
               .local_world = local_world,
               .node_rank = node,
               .nodes = nodes,
               .host = "n" + std::to_string(node),
               .launcher = "openmpi"};
  facts.machine = facts.job.host;
  facts.cores = {.mask = std::to_string(local), .machine_cores = 3};
  facts.memory = {
      .total = 8LL << 30, .available = 8LL << 30, .swap = 0, .shm_total = 1LL << 30, .shm_free = 1LL << 30};
  facts.limits.files = {1 << 16, 1 << 16};
  facts.cpu_capability = "AVX2";
  facts.has_avx2 = true;
  facts.versions = {{"lockstep", "1"}, {"libtorch", "2"}};
  return facts;
}

// So many ranks on each machine, with a core each.
Cluster cluster(const std::vector<int>& ranks_a_machine) {
  Cluster all;
  for (size_t node = 0; node < ranks_a_machine.size(); ++node)
    for (int local = 0; local < ranks_a_machine[node]; ++local)
      all.ranks.push_back(good_rank(local, static_cast<int>(node), ranks_a_machine[node],
                                    static_cast<int>(ranks_a_machine.size())));
  for (size_t rank = 0; rank < all.ranks.size(); ++rank) {
    all.ranks[rank].job.rank = static_cast<int>(rank);
    all.ranks[rank].job.world = static_cast<int>(all.ranks.size());
  }
  return all;
}

Cluster with_gpus(const std::vector<int>& ranks_a_machine) {
  Cluster all = cluster(ranks_a_machine);
  for (RankFacts& facts : all.ranks) {
    facts.gpu = facts.job.local_rank;
    for (const char* bus : {"0000:17:00.0", "0000:65:00.0"})
      facts.gpus.push_back({.uuid = facts.job.host + bus,
                            .name = "H200",
                            .bus = bus,
                            .near = std::to_string(facts.gpus.size())});
  }
  return all;
}

Findings findings_of(const std::string& name, const Cluster& all) {
  for (const Check& check : checks())
    if (check.name == name) return evaluate(check, all);
  return {};
}

// "warning: ranks 0 and 1 ..." a line
std::string said(const Findings& findings) {
  std::string text;
  for (const Finding& finding : findings)
    text += nlohmann::json(finding.verdict).get<std::string>() + ": " + finding.says + "\n";
  return text;
}

struct Case {
  const char* name;
  const char* check;
  Cluster all;
  void (*break_rank)(RankFacts& facts);  // each rank
  std::string says;                      // how the findings begin
};

void PrintTo(const Case& one, std::ostream* out) {
  *out << one.name;
}

class Rules : public testing::TestWithParam<Case> {};

TEST_P(Rules, FindTheFault) {
  const auto& [name, check, all, break_rank, says] = GetParam();
  Cluster broken = all;
  for (RankFacts& facts : broken.ranks) {
    break_rank(facts);
    if (facts.cores.whole.empty()) facts.cores.whole = facts.cores.mask;
  }
  const auto findings = findings_of(check, broken);
  EXPECT_TRUE(said(findings).starts_with(says)) << said(findings);
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.check, check);
    EXPECT_EQ(finding.remedy.empty(), finding.verdict == FindingLevel::ok) << finding.says;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Table, Rules,
    testing::Values(
        Case{"phantom", "launcher", cluster({1}),
             [](RankFacts& f) { f.job.phantom = "alone, but 4 tasks", f.job.phantom_hint = "use srun"; },
             "failure: alone, but 4 tasks\n"},
        Case{"launcher_warning", "launcher", cluster({1}), [](RankFacts& f) { f.job.warnings = {"odd"}; },
             "warning: odd\n"},
        Case{"uneven", "ranks", cluster({2, 1}), [](RankFacts&) {},
             "warning: 3 ranks on 2 machines, unevenly (n0: 2, n1: 1)\n"},
        Case{"kernel", "versions", cluster({2}),
             [](RankFacts& f) { if (f.job.rank == 1) f.versions["kernel"] = "5"; },
             "warning: kernel is not set on rank 0, 5 on rank 1\n"},
        Case{"libtorch_version", "versions", cluster({2}),
             [](RankFacts& f) { if (f.job.rank == 1) f.versions["kernel"] = "5", f.versions["libtorch"] = "3"; },
             "failure: libtorch is 2 on rank 0, 3 on rank 1\n"},
        Case{"collector", "collection", cluster({2}), [](RankFacts& f) { f.failed["cores"] = "no"; },
             "warning: cannot examine the cores: no\n"},
        Case{"host_of_one", "host", cluster({2}), [](RankFacts& f) { f.host_error = "no such name"; },
             "warning: the host's name n0 does not resolve: no such name\n"},
        Case{"host_of_two", "host", cluster({1, 1}), [](RankFacts& f) { f.host_error = "no such name"; },
             "failure: rank 0: the host's name n0 does not resolve"},
        Case{"one_core", "cores", cluster({3}), [](RankFacts& f) { f.cores.mask = "2"; },
             "warning: ranks 0-2 share 1 CPU (CPU 2)\n"},
        Case{"one_core_on_each_node", "cores", cluster({2, 2}), [](RankFacts& f) { f.cores.mask = "0"; },
             "warning: n0: ranks 0 and 1 share 1 CPU (CPU 0)\nwarning: n1: ranks 2 and 3 share 1 CPU"},
        Case{"overlap", "cores", cluster({2}), [](RankFacts& f) { f.cores.mask = f.job.rank ? "1-2" : "0-1"; },
             "warning: ranks 0 and 1 are bound to cores that they share (CPUs 0-1 and 1-2)\n"},
        Case{"hyperthreads", "cores", cluster({2}), [](RankFacts& f) { f.cores.whole = "0-1"; },
             "warning: ranks 0 and 1 are bound to cores that they share (CPUs 0 and 1)\n"},
        Case{"bound_to_numa_nodes", "cores", cluster({4}),
             [](RankFacts& f) { f.cores.mask = f.job.rank < 2 ? "0-1" : "2-3"; }, "ok: "},
        Case{"not_bound", "cores", cluster({3}),
             [](RankFacts& f) { f.cores.mask = "0-3", f.cores.cores = 3; }, "ok: "},
        Case{"idle", "cores", cluster({2}), [](RankFacts& f) { f.cores.machine_cores = 64; },
             "warning: ranks 0 and 1 may use 2 of 64 cores\n"},
        Case{"not_ours", "cores", cluster({2}),
             [](RankFacts& f) { f.cores.machine_cores = 64, f.job.scheduler = "slurm"; }, "ok: "},
        Case{"threads", "threads", cluster({2}),
             [](RankFacts& f) { if (f.job.rank == 1) f.variables["OMP_NUM_THREADS"] = "8"; },
             "warning: rank 1: OMP_NUM_THREADS=8 is more than"},
        Case{"no_number", "threads", cluster({2}), [](RankFacts& f) { f.variables["OMP_NUM_THREADS"] = "many"; },
             "failure: OMP_NUM_THREADS=many is not a number from 1 to 2147483647 (environment variable"},
        Case{"far_gpu", "locality", with_gpus({2}), [](RankFacts& f) { f.gpu = 0; },
             "warning: rank 1: cuda:0 is close to CPUs 0, but the rank may only use 1\n"},
        Case{"one_gpu_for_two", "gpus", with_gpus({2}), [](RankFacts& f) { f.gpu = 0; },
             "failure: ranks 0 and 1 use one GPU (0000:17:00.0 on node 0)\n"},
        Case{"parts_of_a_gpu", "gpus", with_gpus({2}), [](RankFacts& f) { f.gpus[1].bus = f.gpus[0].bus; },
             "failure: ranks 0 and 1 use parts (MIG) of one GPU (0000:17:00.0 on node 0)\n"},
        Case{"two_kinds", "gpus", with_gpus({1, 1}),
             [](RankFacts& f) { if (f.job.rank == 1) f.gpus[0].name = "A100"; },
             "warning: the ranks' GPUs differ: A100 on rank 1, H200 on rank 0\n"},
        Case{"some_without", "gpus", with_gpus({1, 1}), [](RankFacts& f) { f.gpu = -f.job.rank; },
             "failure: the ranks' GPUs differ: H200 on rank 0, none on rank 1\n"},
        Case{"too_few_gpus", "gpus", with_gpus({2}), [](RankFacts& f) { f.device_error = "sees no GPU"; },
             "failure: sees no GPU\n"},
        Case{"no_avx", "libtorch", cluster({2}), [](RankFacts& f) { f.cpu_capability = "DEFAULT"; },
             "warning: libtorch computes without AVX2 (DEFAULT)"},
        Case{"uneven_avx", "libtorch", cluster({2}),
             [](RankFacts& f) { if (f.job.rank == 1) f.cpu_capability = "AVX512"; },
             "warning: libtorch uses different instructions on the ranks: AVX2 on rank 0, AVX512 on rank 1\n"},
        Case{"little_memory", "memory", cluster({2}),
             [](RankFacts& f) { f.memory.limit = 3LL << 30, f.memory.used = 2LL << 30, f.memory.limit_file = "max"; },
             "warning: 512 MiB for each of 2 ranks (8 GiB available of 8 GiB, 2 GiB of 3 GiB used (max), "
             "swap none)\n"},
        Case{"no_memory", "memory", cluster({2}), [](RankFacts& f) { f.memory.limit = f.memory.used = 3LL << 30; },
             "failure: 0 B for each of 2 ranks"},
        Case{"full_shm", "shm", cluster({2}), [](RankFacts& f) { f.memory.shm_error = "No space left"; },
             "failure: No space left; 1 GiB of 1 GiB are free there\n"},
        Case{"two_shms", "shm", cluster({2}),
             [](RankFacts& f) { f.memory.shm_device = static_cast<unsigned long>(f.job.rank); },
             "failure: the ranks of this machine have different /dev/shm"},
        Case{"shm_of_two_machines", "shm", cluster({1, 1}),
             [](RankFacts& f) { f.memory.shm_device = static_cast<unsigned long>(f.job.rank); }, "ok: "},
        Case{"small_shm", "shm", cluster({1}), [](RankFacts& f) { f.memory.shm_free = 64 << 20; },
             "warning: /dev/shm has 64 MiB free"},
        Case{"files", "limits", cluster({1}), [](RankFacts& f) { f.limits.files.hard = 10; },
             "failure: a process may open 10 files, and 1 rank needs "},
        Case{"locked_with_infiniband", "limits", cluster({1}),
             [](RankFacts& f) { f.limits.locked = {64 << 10, 64 << 10}, f.infiniband = true; },
             "warning: locked memory: at most 64 KiB"},
        Case{"locked", "limits", cluster({1}), [](RankFacts& f) { f.limits.locked = {64 << 10, 64 << 10}; }, "ok: "},
        Case{"stack", "limits", cluster({1}), [](RankFacts& f) { f.limits.stack.soft = 1 << 10; },
             "warning: a stack: at most 1 KiB"},
        Case{"container", "container", cluster({1}),
             [](RankFacts& f) { f.container = "Apptainer", f.nvidia_driver = true; },
             "warning: this node has GPUs, but the Apptainer container lacks"},
        Case{"container_for_cpus", "container", cluster({1}),
             [](RankFacts& f) { f.container = "Apptainer", f.nvidia_driver = true, f.wanted = "cpu"; },
             "ok: Apptainer\n"},
        Case{"signals", "signals", cluster({1}), [](RankFacts& f) { f.blocked_signals = {"SIGTERM"}; },
             "failure: SIGTERM is blocked"},
        Case{"odd_variables", "variables", cluster({1}),
             [](RankFacts& f) { f.variables = {{"NCCL_P2P_DISABLE", "1"}, {"NCCL_IB_DISABLE", "0"}}; },
             "warning: NCCL_P2P_DISABLE=1 prevents direct copies between the GPUs of a node\n"},
        Case{"different_variables", "variables", cluster({2}),
             [](RankFacts& f) {
               if (f.job.rank == 1) f.variables = {{"NCCL_ALGO", "Ring"}, {"OMPI_COMM_WORLD_RANK", "1"}};
             },
             "warning: NCCL_ALGO is not set on rank 0, Ring on rank 1\n"}),
    [](const auto& info) { return info.param.name; });

TEST(Checks, AcceptGoodClustersWithOneLineEach) {
  for (const auto& all : {cluster({1}), cluster({2, 2}), with_gpus({2, 2})})
    for (const Check& check : checks()) {
      const auto findings = evaluate(check, all);
      EXPECT_EQ(findings.size(), check.ok ? 1U : 0U) << check.name;
      for (const Finding& finding : findings)
        EXPECT_EQ(finding.verdict, FindingLevel::ok) << check.name << ": " << finding.says;
    }
}

TEST(Checks, HaveTheNamesThatErrorsOfARunUse) {
  std::set<std::string> names = {"rendezvous"};  // doctor.cpp's own
  for (const Check& check : checks()) EXPECT_TRUE(names.emplace(check.name).second) << check.name;
  for (const Measurement& one : kMeasurements) EXPECT_TRUE(names.insert(one.name).second) << one.name;
  for (const auto& hint : launch::doctor_hints()) EXPECT_TRUE(names.contains(hint.check)) << hint.check;
}

TEST(Libtorch, RunsOnTheGpusItWasBuiltFor) {
  const auto level = [](int major, int minor, std::vector<std::string> architectures) {
    Cluster all = with_gpus({1});
    all.ranks[0].gpus[0].major = major;
    all.ranks[0].gpus[0].minor = minor;
    all.ranks[0].torch_archs = std::move(architectures);
    return findings_of("libtorch", all).at(0).verdict;
  };
  EXPECT_EQ(level(9, 0, {"sm_80", "sm_90"}), FindingLevel::ok);
  EXPECT_EQ(level(8, 6, {"sm_80"}), FindingLevel::ok) << "of its generation";
  EXPECT_EQ(level(9, 0, {"sm_90a"}), FindingLevel::ok);
  EXPECT_EQ(level(12, 0, {"sm_90", "compute_90"}), FindingLevel::ok) << "compiled by the driver";
  EXPECT_EQ(level(12, 0, {"sm_90"}), FindingLevel::failure);
  EXPECT_EQ(level(7, 0, {"sm_75", "sm_80"}), FindingLevel::failure);
  EXPECT_EQ(level(9, 1, {"sm_90a"}), FindingLevel::failure);
  EXPECT_EQ(architectures_in("  - NVCC flags: -gencode;arch=compute_80,code=sm_80;-gencode;arch=compute_90,"
                             "code=compute_90\n  - CuDNN 9"),
            (std::vector<std::string>{"sm_80", "compute_90"}));
}

// What measurements between ranks mean: sums, times, networks, folders, NCCL.

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
  expect({deadline_finding(job, now - 90s, now)}, kWarning, "has passed", "clock");
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
         "different files on n0 and n1");
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
  expect(with([](FolderAccess& one) { one.hangs = true; }), kFailure, "did not finish in time on n1");
  expect(with([](FolderAccess& one) { one.is_seen = false; }), kFailure, "n0 does not see what n1 writes");
}

// --- NCCL ---

TEST(Nccl, SocketsBesideAFabricAreAWarning) {
  const std::string log = R"(n1:7:7 [0] NCCL INFO NET/Plugin: No plugin found (libnccl-net.so)
n1:7:9 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.5<0>
n1:7:9 [0] NCCL INFO Using network Socket
n1:7:9 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0
n1:7:9 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via P2P/CUMEM
)";
  expect({nccl_finding(log, {}, 2)}, kOk, "network Socket, channels NET/Socket/0, P2P/CUMEM");
  expect({nccl_finding(log, {"mlx5_0"}, 1)}, kOk);
  expect({nccl_finding(log, {"mlx5_0"}, 2)}, kWarning, "mlx5_0");
}

}  // namespace
}  // namespace lockstep::doctor
