#include <gtest/gtest.h>

#include "pictures.h"
#include "tools/doctor/job/deadline.h"
#include "tools/doctor/node/libtorch.h"

namespace lockstep::doctor {
using namespace pictures;

TEST(Memory, OfAControlGroupCountsAndIsSharedByTheNodesRanks) {
  Picture picture = cluster({2});
  for (auto& facts : picture.ranks) {
    facts.memory.limit = 3LL << 30;
    facts.memory.used = 2LL << 30;
    facts.memory.limit_file = "memory.max";
  }
  EXPECT_EQ(said(judge_memory(picture)),
            "warning: 512 MiB for each of 2 ranks (8.0 GiB available of 8.0 GiB, 2.0 GiB of 3.0 GiB used "
            "(memory.max), swap none)\n");
  for (auto& facts : picture.ranks) facts.memory.used = 3LL << 30;
  EXPECT_EQ(only(judge_memory(picture)).verdict, FindingLevel::failure);
}

TEST(Shm, ThatIsSmallOrOfTwoContainersIsFound) {
  Picture picture = cluster({2});
  picture.ranks[1].memory.shm_device = 7;
  EXPECT_EQ(only(judge_shm(picture)).verdict, FindingLevel::failure);
  picture = cluster({1, 1});
  picture.ranks[1].memory.shm_device = 7;
  EXPECT_EQ(only(judge_shm(picture)).verdict, FindingLevel::ok) << "two machines";
  picture.ranks[1].memory.shm_free = 64 << 20;
  EXPECT_EQ(only(judge_shm(picture)).verdict, FindingLevel::warning);
}

TEST(Limits, OnLockedMemoryMatterWithInfiniBandAlone) {
  Picture picture = cluster({1});
  picture.ranks[0].limits.locked = {64 << 10, 64 << 10};
  EXPECT_EQ(only(judge_limits(picture)).verdict, FindingLevel::ok);
  picture.ranks[0].walls.infiniband = true;
  EXPECT_EQ(only(judge_limits(picture)).verdict, FindingLevel::warning);
}

TEST(Container, ThatHidesTheDriverIsFound) {
  Picture picture = cluster({1});
  picture.ranks[0].walls = {.container = "Apptainer", .nvidia_kernel = true};
  EXPECT_NE(only(judge_container(picture)).remedy.find("--nv"), std::string::npos);
  picture.ranks[0].wanted = "cpu";
  EXPECT_EQ(only(judge_container(picture)).verdict, FindingLevel::ok);
}

TEST(Host, WithoutAnAddressIsAFailureWhereThereAreSeveral) {
  Picture one = cluster({2}), two = cluster({1, 1});
  one.ranks[0].host_error = two.ranks[0].host_error = "Name or service not known";
  EXPECT_EQ(judge_host(one)[0].verdict, FindingLevel::warning);
  EXPECT_EQ(judge_host(two)[0].verdict, FindingLevel::failure);
}

TEST(Gpus, OfTwoKindsAreAWarningAndOnSomeRanksAloneAFailure) {
  Picture picture = cluster({1, 1});
  for (auto& facts : picture.ranks) {
    facts.gpus = {{.uuid = facts.job.host, .name = "H200"}};
    facts.gpu = 0;
  }
  EXPECT_EQ(only(judge_gpus(picture)).verdict, FindingLevel::ok);
  picture.ranks[1].gpus[0].name = "A100";
  EXPECT_EQ(said(judge_gpus(picture)), "warning: the ranks' GPUs differ: A100 on rank 1, H200 on rank 0\n");
  picture.ranks[1].gpu = -1;
  EXPECT_EQ(only(judge_gpus(picture)).verdict, FindingLevel::failure);
}

TEST(Gpus, ThatLibtorchWasNotBuiltForAreAFailure) {
  const auto judged = [](int major, int minor, std::vector<std::string> archs) {
    Picture picture = cluster({1});
    picture.ranks[0].gpus = {{.name = "G", .major = major, .minor = minor}};
    picture.ranks[0].gpu = 0;
    picture.ranks[0].torch_archs = std::move(archs);
    return only(judge_libtorch(picture)).verdict;
  };
  EXPECT_EQ(judged(9, 0, {"sm_80", "sm_90"}), FindingLevel::ok);
  EXPECT_EQ(judged(8, 6, {"sm_80"}), FindingLevel::ok) << "of its generation";
  EXPECT_EQ(judged(9, 0, {"sm_90a"}), FindingLevel::ok);
  EXPECT_EQ(judged(12, 0, {"sm_90", "compute_90"}), FindingLevel::ok) << "compiled by the driver";
  EXPECT_EQ(judged(12, 0, {"sm_90"}), FindingLevel::failure);
  EXPECT_EQ(judged(7, 0, {"sm_75", "sm_80"}), FindingLevel::failure);
  EXPECT_EQ(judged(9, 1, {"sm_90a"}), FindingLevel::failure);
}

TEST(Libtorch, TellsItsArchitecturesInItsConfig) {
  const std::string config =
      "  - NVCC architecture flags: "
      "-gencode;arch=compute_80,code=sm_80;-gencode;arch=compute_90,code=compute_90\n"
      "  - CuDNN 9";
  EXPECT_EQ(architectures_in(config), (std::vector<std::string>{"sm_80", "compute_90"}));
  EXPECT_TRUE(architectures_in("a build for CPUs").empty());
}

TEST(Deadline, OfAJobThatEndsSoonOrThatNobodyKnowsIsAWarning) {
  const launch::Time now{};
  const Job job{.scheduler = "slurm", .job_id = "1"};
  EXPECT_EQ(judge_deadline({}, {}, now).verdict, FindingLevel::ok);
  EXPECT_EQ(judge_deadline(job, {}, now).verdict, FindingLevel::warning);
  EXPECT_EQ(judge_deadline(job, now + std::chrono::hours(3), now).verdict, FindingLevel::ok);
  const auto soon = judge_deadline(job, now + std::chrono::seconds(90), now);
  EXPECT_TRUE(soon.verdict == FindingLevel::warning && soon.says.starts_with("the job ends in 90 s"))
      << soon.says;
  for (const char* scheduler : {"lsf", "flux"}) {
    const auto unknown = judge_deadline({.scheduler = scheduler, .job_id = "1"}, {}, now);
    EXPECT_TRUE(unknown.verdict == FindingLevel::warning && unknown.says.starts_with("doctor cannot know"))
        << unknown.says << ": that squeue or qstat is missing is not what is wrong";
  }
  const auto past = judge_deadline(job, now - std::chrono::seconds(90), now);
  EXPECT_NE(past.remedy.find("clock"), std::string::npos) << "this node's clock is ahead";
}

}  // namespace lockstep::doctor
