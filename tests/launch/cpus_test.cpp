#include "lockstep/launch/process/cpus.h"

#include <sched.h>

#include <filesystem>
#include <fstream>

#include "environments.h"
#include "temp_folder.h"

namespace lockstep {
using namespace test;

namespace {

const launch::CpuMask kWholeNode{"0-15", 16, 16};

Job job_of(int local_world, const std::string& scheduler = "none", const std::string& launcher = "openmpi") {
  return {.world = local_world, .local_world = local_world, .launcher = launcher, .scheduler = scheduler};
}

int threads(const Job& job, const launch::Environment& environment, const launch::CpuMask& mask = kWholeNode,
            std::optional<int> sharers = {}) {
  return launch::choose_threads(job, environment, mask, sharers).threads;
}

}  // namespace

TEST(Threads, RanksShareTheNodesCores) {
  EXPECT_EQ(threads(job_of(1), {}), 16);
  EXPECT_EQ(threads(job_of(4), {}), 4);
  EXPECT_EQ(threads(job_of(5), {}), 3);
  EXPECT_EQ(threads(job_of(64), {}), 1);
}

TEST(Threads, RanksThatAreBoundApartDoNotShare) {
  EXPECT_EQ(threads(job_of(4), {}, {"0-3", 4, 16}, 1), 4);
  EXPECT_EQ(threads(job_of(4), {}, {"0-7", 8, 16}, 2), 4);
  EXPECT_EQ(threads(job_of(4, "slurm", "slurm"), {{"SLURM_CPU_BIND_TYPE", "mask_cpu:"}}, {"0-3", 4, 16}), 4);
  EXPECT_EQ(threads(job_of(4, "slurm", "slurm"), {{"SLURM_CPU_BIND_TYPE", "none"}}, {"0-3", 4, 16}), 1);
}

TEST(Threads, TheSchedulersGrantIsABound) {
  EXPECT_EQ(threads(job_of(2, "slurm"), {{"SLURM_CPUS_PER_TASK", "3"}}), 3);
  EXPECT_EQ(threads(job_of(2, "slurm"), {{"SLURM_CPUS_PER_TASK", "12"}}), 8);
  EXPECT_EQ(threads(job_of(2, "slurm"), {{"SLURM_CPUS_ON_NODE", "4"}}), 2);
  EXPECT_EQ(threads(job_of(2, "pbs"), {{"NCPUS", "4"}}), 2);
  EXPECT_EQ(threads(job_of(2, "torque"), {{"PBS_NUM_PPN", "6"}}), 3);
  EXPECT_EQ(threads(job_of(2), {{"SLURM_CPUS_PER_TASK", "1"}}), 8);  // not in a Slurm job
}

TEST(Threads, AskedForIsHonouredWithAWarningWhereItIsTooMuch) {
  EXPECT_EQ(threads(job_of(4), {{"OMP_NUM_THREADS", "2"}}), 2);
  EXPECT_EQ(threads(job_of(4), {{"OMP_NUM_THREADS", "2,4"}}), 2);
  const auto greedy = launch::choose_threads(job_of(4), {{"OMP_NUM_THREADS", "16"}}, kWholeNode, {});
  EXPECT_EQ(greedy.threads, 16);
  ASSERT_EQ(greedy.warnings.size(), 1U);
  EXPECT_TRUE(holds(greedy.warnings[0], {"OMP_NUM_THREADS=16", "share of 4"}));
  EXPECT_THROW(threads(job_of(1), {{"OMP_NUM_THREADS", "many"}}), InputError);
  EXPECT_THROW(threads(job_of(1), {{"OMP_NUM_THREADS", "0"}}), InputError);
}

TEST(Threads, WhatPbsPresetsIsBoundedByTheShare) {
  const auto share =
      launch::choose_threads(job_of(4, "pbs"), env("NCPUS=16 OMP_NUM_THREADS=16"), kWholeNode, {});
  EXPECT_EQ(share.threads, 4);
  EXPECT_TRUE(holds(share.because, {"PBS's preset"}));
}

TEST(Cpus, TheMaskIsThisProcesses) {
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const launch::CpuMask mask = launch::own_cpus();
  sched_setaffinity(0, sizeof before, &before);
  EXPECT_EQ(mask.units, std::to_string(first));
  EXPECT_EQ(mask.cores, 1);
  EXPECT_GE(launch::own_cpus().machine_cores, launch::own_cpus().cores);
}

TEST(Cpus, MasksOverlapWhereTheyShareAThread) {
  EXPECT_TRUE(launch::masks_overlap("0-3", "3"));
  EXPECT_FALSE(launch::masks_overlap("0-3,8", "4-7"));
}

}  // namespace lockstep

namespace lockstep {
namespace {

namespace fs = std::filesystem;

class CpuQuotas : public ::testing::Test {
 protected:
  void write(const std::string& path, const std::string& text) {
    fs::create_directories((root_ + path).substr(0, (root_ + path).rfind('/')));
    std::ofstream(root_ + path) << text;
  }

  test::TempFolder folder_;
  std::string root_ = folder_.path().string();
};

TEST_F(CpuQuotas, NoneWhereNoneIsSet) {
  EXPECT_FALSE(launch::cpu_quota(root_));
  write("/proc/self/cgroup", "0::/job\n");
  write("/sys/fs/cgroup/job/cpu.max", "max 100000\n");
  EXPECT_FALSE(launch::cpu_quota(root_));
  write("/sys/fs/cgroup/job/cpu.max", "nonsense\n");
  EXPECT_FALSE(launch::cpu_quota(root_));
}

TEST_F(CpuQuotas, VersionTwoAndTheSmallestOfTheGroupsAbove) {
  write("/proc/self/cgroup", "0::/pod/container\n");
  write("/sys/fs/cgroup/pod/cpu.max", "150000 100000\n");
  write("/sys/fs/cgroup/pod/container/cpu.max", "400000 100000\n");
  const auto quota = launch::cpu_quota(root_);
  ASSERT_TRUE(quota);
  EXPECT_DOUBLE_EQ(quota->cores, 1.5);
  EXPECT_EQ(quota->because, root_ + "/sys/fs/cgroup/pod/cpu.max");
}

TEST_F(CpuQuotas, VersionOne) {
  write("/proc/self/cgroup", "12:memory:/docker/0123\n4:cpu,cpuacct:/docker/0123\n0::/\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n");
  write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  ASSERT_TRUE(launch::cpu_quota(root_));
  EXPECT_DOUBLE_EQ(launch::cpu_quota(root_)->cores, 3);
  write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  EXPECT_FALSE(launch::cpu_quota(root_));
}

TEST(Threads, AContainersQuotaIsABound) {
  const launch::CpuMask node{"0-15", 16, 16};
  const Job job = {.world = 3, .local_world = 3};
  const auto threads = [&](double cores) {
    return launch::choose_threads(job, {}, node, 3, launch::CpuQuota{cores, "cpu.max"}).threads;
  };
  EXPECT_EQ(threads(32), 5);
  EXPECT_EQ(threads(6), 2);
  EXPECT_EQ(threads(1.5), 1);
  EXPECT_TRUE(test::holds(launch::choose_threads(job, {}, node, 3, launch::CpuQuota{6, "cpu.max"}).because,
                          {"cpu.max allows 6 cores for 3 ranks"}));
}

}  // namespace
}  // namespace lockstep
