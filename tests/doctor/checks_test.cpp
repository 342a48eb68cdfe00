#include "tools/doctor/node/checks.h"

#include <gtest/gtest.h>

#include <set>

#include "lockstep/launch/process/doctor_hint.h"
#include "pictures.h"
#include "tools/doctor/job/active.h"

namespace lockstep::doctor {
using namespace pictures;

TEST(Checks, AreContentWithAGoodClusterAndEachSpeaksOnce) {
  for (const auto& picture : {cluster({1}), cluster({2, 2})}) {
    for (const Check& check : checks()) {
      const auto findings = judge(check, picture);
      EXPECT_LE(findings.size(), 1u) << check.name;
      for (const Finding& finding : findings)
        EXPECT_EQ(finding.verdict, FindingLevel::ok) << check.name << ": " << finding.says;
    }
  }
}

TEST(Checks, AreCalledByTheNamesThatErrorsNameThemBy) {
  std::set<std::string> names = {"meeting"};  // examine.cpp's own
  for (const Check& check : checks()) EXPECT_TRUE(names.insert(check.name).second) << check.name;
  for (const ActiveCheck& check : active_checks()) EXPECT_TRUE(names.insert(check.name).second) << check.name;
  for (const auto& hint : launch::doctor_hints()) EXPECT_TRUE(names.contains(hint.check)) << hint.check;
}

TEST(Checks, OfEveryWarningAndFailureSayWhatToDo) {
  Picture bad = cluster({3, 1});
  for (RankFacts& facts : bad.ranks) {
    facts.cores.mask = "0";
    facts.memory.available = 1 << 20;
    facts.memory.shm_free = 0;
    facts.limits.files.hard = 10;
    facts.host_error = "no such name";
    facts.walls = {.nvidia_devices = true, .blocked_signals = {"SIGTERM"}};
    facts.cpu_capability = "DEFAULT";
    facts.variables = {{"NCCL_P2P_DISABLE", "1"}, {"OMP_NUM_THREADS", "99"}};
    facts.versions["lockstep"] = std::to_string(facts.job.rank);
    facts.device_error = "sees no GPU";
    facts.job.phantom = "alone";
    facts.job.phantom_hint = "use srun";
    facts.failed["cores"] = "no";
  }
  for (const Check& check : checks()) {
    if (check.name == std::string("locality")) continue;
    const auto findings = judge(check, bad);
    ASSERT_FALSE(findings.empty()) << check.name;
    for (const Finding& finding : findings) {
      EXPECT_NE(finding.verdict, FindingLevel::ok) << check.name << ": " << finding.says;
      EXPECT_FALSE(finding.remedy.empty()) << check.name;
    }
  }
}

TEST(Ranks, ThatAreMissingAreNamed) {
  Picture picture = cluster({2, 2});
  picture.ranks.erase(picture.ranks.begin() + 1);
  EXPECT_EQ(only(judge_ranks(picture)).says, "rank 1 of 4 did not come");
  EXPECT_EQ(said(judge_ranks(cluster({2, 1}))), "warning: 3 ranks on 2 machines, unevenly (n0: 2, n1: 1)\n");
}

TEST(Launcher, OfAPhantomIsAFailureWithItsOwnRemedy) {
  Picture picture = cluster({1});
  Job& job = picture.ranks[0].job;
  job.phantom = "alone, but 4 tasks";
  job.phantom_hint = "use srun";
  job.warnings = {"odd"};
  const auto findings = judge_launcher(picture);
  EXPECT_EQ(said(findings), "failure: alone, but 4 tasks\nwarning: odd\n");
  EXPECT_EQ(findings[0].remedy, "use srun");
}

TEST(Cores, ThatTwoRanksShareAreNamed) {
  Picture picture = cluster({3});
  for (auto& facts : picture.ranks) facts.cores.mask = "2";
  EXPECT_EQ(said(judge_cores(picture)), "warning: ranks 0-2 have 1 CPU to share (2)\n");
  picture.ranks[0].cores.mask = "0-1";
  picture.ranks[1].cores.mask = "1-2";
  picture.ranks[2].cores.mask = "3";
  EXPECT_EQ(said(judge_cores(picture)),
            "warning: ranks 0 and 1 are bound to CPUs that overlap (0-1 and 1-2)\n");
  for (auto& facts : picture.ranks) facts.cores.mask = "0-3";
  EXPECT_EQ(only(judge_cores(picture)).verdict, FindingLevel::ok) << "not bound, and enough for all";
}

TEST(Cores, AreSharedByTheirHardwareThreads) {
  Picture picture = cluster({2});
  for (auto& facts : picture.ranks) facts.cores.whole = "0-1";
  EXPECT_EQ(said(judge_cores(picture)),
            "warning: ranks 0 and 1 are bound to hardware threads of the same cores (0 and 1)\n");
}

TEST(Cores, OfTwoMachinesAreNotTheSame) {
  Picture picture = cluster({2, 2});
  EXPECT_EQ(only(judge_cores(picture)).verdict, FindingLevel::ok);
  for (auto& facts : picture.ranks) facts.cores.mask = "0";
  EXPECT_EQ(said(judge_cores(picture)),
            "warning: n0: ranks 0 and 1 have 1 CPU to share (0)\n"
            "warning: n1: ranks 2 and 3 have 1 CPU to share (0)\n");
}

TEST(Cores, ThatNobodyUsesAreToldOutsideAJob) {
  Picture picture = cluster({2});
  for (auto& facts : picture.ranks) facts.cores.machine_threads = 64;
  EXPECT_EQ(said(judge_cores(picture)), "warning: ranks 0 and 1 may use 2 of 64 CPUs\n");
  for (auto& facts : picture.ranks) facts.job.scheduler = "slurm";
  EXPECT_EQ(only(judge_cores(picture)).verdict, FindingLevel::ok) << "the rest was not ours";
}

TEST(Threads, BeyondTheShareAreAWarningOfTheRanksThatHaveThem) {
  Picture picture = cluster({2});
  picture.ranks[1].variables["OMP_NUM_THREADS"] = "8";
  const auto finding = only(judge_threads(picture));
  EXPECT_EQ(finding.verdict, FindingLevel::warning);
  EXPECT_TRUE(finding.says.starts_with("rank 1: OMP_NUM_THREADS=8 is more than")) << finding.says;
}

TEST(Threads, ThatAreNoNumberAreSaidByTheirName) {
  Picture picture = cluster({2});
  picture.ranks[1].variables["OMP_NUM_THREADS"] = "many";
  const auto findings = judge({"threads", judge_threads}, picture);
  ASSERT_EQ(findings.size(), 1u);
  EXPECT_EQ(findings[0].verdict, FindingLevel::failure);
  EXPECT_EQ(
      findings[0].says,
      "OMP_NUM_THREADS=many is not a number from 0 to 2147483647 (environment variable OMP_NUM_THREADS)");
  EXPECT_TRUE(findings[0].remedy.starts_with("correct or unset OMP_NUM_THREADS")) << findings[0].remedy;
}

TEST(Locality, OfAGpuBesideOtherCoresIsAWarningAndTheNodeIsDrawn) {
  Picture picture = cluster({2});
  for (auto& facts : picture.ranks) {
    facts.cores.numa = {"0", "1"};
    facts.gpus = {{.uuid = "a", .bus = "0000:17:00.0"}, {.uuid = "b", .bus = "0000:65:00.0"}};
    facts.gpu = facts.job.local_rank;
    facts.cores.gpu_near = {"0", "1"};
  }
  EXPECT_EQ(only(judge_locality(picture)).drawing,
            "n0  NUMA 0  CPUs 0             rank 0  GPU 0000:17:00.0 (rank 0)\n"
            "n0  NUMA 1  CPUs 1             rank 1  GPU 0000:65:00.0 (rank 1)\n");
  picture.ranks[1].gpu = 0;
  EXPECT_EQ(said(judge_locality(picture)),
            "warning: rank 1: cuda:0 is beside CPUs 0, and the rank may use 1 alone\n");
}

TEST(Versions, ThatDifferAreAFailureWhereTheyMustNot) {
  Picture picture = cluster({2});
  picture.ranks[1].versions["kernel"] = "5";
  EXPECT_EQ(said(judge_versions(picture)), "warning: kernel is not set on rank 0, 5 on rank 1\n");
  picture.ranks[1].versions["libtorch"] = "3";
  EXPECT_EQ(said(judge_versions(picture)), "failure: libtorch is 2 on rank 0, 3 on rank 1\n");
}

TEST(Variables, ThatDifferBetweenRanksAreNamedAndALaunchersAreNot) {
  Picture picture = cluster({2});
  picture.ranks[1].variables = {{"NCCL_ALGO", "Ring"}, {"OMPI_COMM_WORLD_RANK", "1"}};
  EXPECT_EQ(said(judge_variables(picture)), "warning: NCCL_ALGO is not set on rank 0, Ring on rank 1\n");
}

}  // namespace lockstep::doctor
