#include <filesystem>
#include <fstream>

#include "environments.h"
#include "lockstep/launch/process/cpus.h"
#include "temp_folder.h"

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
