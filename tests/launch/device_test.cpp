#include "lockstep/launch/device.h"

#include "environments.h"

namespace lockstep {
using namespace test;

namespace {

const Job kThird{
    .rank = 6, .world = 8, .local_rank = 2, .local_world = 4, .node_rank = 1, .nodes = 2, .host = "n2"};

std::string refused(const std::string& wanted, const launch::GpuCount& visible) {
  try {
    launch::choose_device(kThird, wanted, visible);
  } catch (const InputError& error) {
    return describe(error);
  }
  return "";
}

}  // namespace

TEST(Device, FollowsTheLocalRank) {
  EXPECT_EQ(launch::choose_device(kThird, "auto", launch::GpuCount{4, "test"}).name, "cuda:2");
  EXPECT_EQ(launch::choose_device(kThird, "cuda", launch::GpuCount{3, "test"}).index, 2);
}

TEST(Device, TheOnlyVisibleGpuIsOurs) {
  const auto choice = launch::choose_device(kThird, "cuda", launch::GpuCount{1, "CUDA_VISIBLE_DEVICES=2"});
  EXPECT_EQ(choice.name, "cuda:0");
  EXPECT_TRUE(holds(choice.because, {"one visible GPU", "CUDA_VISIBLE_DEVICES=2"}));
}

TEST(Device, IsTheCpuWithoutGpus) {
  const auto choice = launch::choose_device(kThird, "auto", launch::GpuCount{0, "no driver"});
  EXPECT_EQ(choice.name, "cpu");
  EXPECT_FALSE(choice.is_cuda());
  EXPECT_EQ(launch::choose_device(kThird, "cpu", launch::GpuCount{4, "test"}).name, "cpu");
}

TEST(Device, IsTheCpuForWhatSumsThere) {
  for (const LaunchOptions& options : {LaunchOptions{.backend = "gloo"}, LaunchOptions{.backend = "mpi"},
                                       LaunchOptions{.allreduce = "ring"}}) {
    auto asked = options;
    EXPECT_EQ(launch::choose_device(kThird, asked, launch::Environment{}).name, "cpu");
    asked.device = "cpu";
    EXPECT_EQ(launch::choose_device(kThird, asked, launch::Environment{}).name, "cpu");
    asked.device = "cuda";
    EXPECT_THROW(launch::choose_device(kThird, asked, launch::Environment{}), InputError);
  }
}

TEST(Device, TooFewGpusNamesTheRankAndWhatItSaw) {
  EXPECT_TRUE(holds(
      refused("auto", {2, "CUDA_VISIBLE_DEVICES=0,1"}),
      {"rank 6 is local rank 2 of 4", "2 visible GPUs", "CUDA_VISIBLE_DEVICES=0,1", "host n2", "at most 2"}));
  EXPECT_TRUE(holds(refused("cuda", {0, "no CUDA driver"}), {"rank 6 sees no GPU", "no CUDA driver", "cpu"}));
  EXPECT_TRUE(holds(refused("gpu", {4, "test"}), {"unknown device 'gpu'"}));
}

TEST(Device, HiddenGpusAreNotAskedFor) {
  for (const char* value : {"", "-1", "NoDevFiles"}) {
    const auto gpus = launch::count_gpus({{"CUDA_VISIBLE_DEVICES", value}});
    EXPECT_EQ(gpus.count, 0);
    EXPECT_TRUE(holds(gpus.because, {"CUDA_VISIBLE_DEVICES="}));
  }
}

}  // namespace lockstep
