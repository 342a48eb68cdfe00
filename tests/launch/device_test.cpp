#include "lockstep/launch/device.h"

#include "environments.h"

namespace lockstep {
using namespace test;

namespace {

const Job kThird{
    .rank = 6, .world = 8, .local_rank = 2, .local_world = 4, .node_rank = 1, .nodes = 2, .host = "n2"};

std::string refused(const std::string& wanted, const launch::GpuCount& visible,
                    const launch::OwnGpus& own = {}) {
  return describe(error_from([&] { launch::choose_device(kThird, wanted, visible, own); }));
}

}  // namespace

TEST(Device, FollowsTheLocalRankOrIsTheCpu) {
  EXPECT_EQ(launch::choose_device(kThird, "auto", launch::GpuCount{4, "test"}).name, "cuda:2");
  EXPECT_EQ(launch::choose_device(kThird, "cuda", launch::GpuCount{3, "test"}).index, 2);
  const auto without = launch::choose_device(kThird, "auto", launch::GpuCount{0, "no driver"});
  EXPECT_EQ(without.name, "cpu");
  EXPECT_FALSE(without.is_cuda());
  EXPECT_EQ(launch::choose_device(kThird, "cpu", launch::GpuCount{4, "test"}).name, "cpu");
}

TEST(Device, TheOnlyVisibleGpuIsOurs) {
  const auto choice = launch::choose_device(kThird, "cuda", launch::GpuCount{1, "CUDA_VISIBLE_DEVICES=2"});
  EXPECT_EQ(choice.name, "cuda:0");
  EXPECT_TRUE(holds(choice.because, {"one visible GPU", "CUDA_VISIBLE_DEVICES=2"}));
}

TEST(Device, SeveralGpusOfARankFollowItsLocalRank) {
  const auto choose = [](int visible, const launch::OwnGpus& own) {
    return launch::choose_device(kThird, "auto", launch::GpuCount{visible, "test"}, own);
  };
  EXPECT_EQ(choose(8, {0, 1}).name, "cuda:4");
  EXPECT_EQ(choose(8, {0, 1}).all, (std::vector{4, 5}));
  EXPECT_EQ(choose(6, {0, 1}).all, (std::vector{4, 5}));  // the last two
  EXPECT_EQ(choose(8, {1, 0}).name, "cuda:5");            // the first of the list is the rank's device
  EXPECT_EQ(choose(9, {0, 2}).all, (std::vector{6, 8}));  // three each, and one of them idle
  EXPECT_EQ(choose(4, {0, 0}).all, (std::vector{2, 2}));
  EXPECT_EQ(choose(4, {}).all, std::vector{2});
  EXPECT_EQ(choose(0, {0, 1}).name, "cpu");
  EXPECT_TRUE(choose(0, {0, 1}).all.empty());
}

TEST(Device, AsManyVisibleGpusAsARankHasAreOurs) {
  const auto choice =
      launch::choose_device(kThird, "cuda", launch::GpuCount{2, "CUDA_VISIBLE_DEVICES=4,5"}, {1, 0});
  EXPECT_EQ(choice.all, (std::vector{1, 0}));
  EXPECT_EQ(choice.name, "cuda:1");
  EXPECT_TRUE(holds(choice.because, {"the 2 visible GPUs", "CUDA_VISIBLE_DEVICES=4,5"}));
}

TEST(Device, TooFewGpusForSeveralARankNamesThose) {
  EXPECT_TRUE(holds(refused("auto", {5, "test"}, {0, 1}),
                    {"rank 6 is local rank 2 of 4, needs cuda:4 and cuda:5 and sees 5 visible GPUs",
                     "host n2", "at most 2 ranks per node (2 GPUs each)"}));
  EXPECT_TRUE(holds(refused("auto", {7, "test"}, {0, 3}),
                    {"needs cuda:8 to cuda:11 and sees 7", "at most 1 rank per node (4 GPUs each)"}));
  EXPECT_TRUE(holds(refused("cuda", {1, "test"}, {0, 1}),
                    {"needs cuda:4 and cuda:5 and sees 1 visible GPU", "request 2 GPUs per rank"}));
}

TEST(Device, IsTheCpuForWhatSumsThere) {
  for (const LaunchOptions& options : {LaunchOptions{.backend = "gloo"}, LaunchOptions{.backend = "mpi"},
                                       LaunchOptions{.allreduce = "ring"}}) {
    auto asked = options;
    EXPECT_EQ(launch::choose_device(kThird, asked, launch::Environment{}).name, "cpu");
    asked.device = "cpu";
    EXPECT_EQ(launch::choose_device(kThird, asked, launch::Environment{}).name, "cpu");
    asked.device = "cuda";
    EXPECT_EQ(launch::is_staged(asked), options.backend == "gloo");
    const auto choose = [&] { launch::choose_device(kThird, asked, env("CUDA_VISIBLE_DEVICES=")); };
    EXPECT_TRUE(
        holds(error_from(choose).what(), {options.backend == "gloo" ? "has no GPU" : "which sums on CPUs"}));
  }
}

TEST(Device, IsSharedInBlocksWhereSumsAreStaged) {
  const auto place_of = [](int local_rank, int local_world, int gpus) {
    const Job job{
        .rank = local_rank, .world = local_world, .local_rank = local_rank, .local_world = local_world};
    return launch::choose_staged(job, {gpus, "test"}, {}).index;
  };
  for (const int gpus : {1, 2, 3, 5}) {
    int before = 0;
    for (int rank = 0; rank < 5; ++rank) {
      const int place = place_of(rank, 5, gpus);
      EXPECT_TRUE(place == before || place == before + 1) << rank << " on " << gpus;
      before = place;
    }
    EXPECT_EQ(before, gpus - 1);
  }
  EXPECT_EQ(place_of(1, 2, 4), 1);  // each has one of its own
  EXPECT_THROW(place_of(0, 2, 0), InputError);
  EXPECT_THROW(launch::choose_staged(kThird, {1, "test"}, {0, 1}), InputError);  // two a rank are not shared
}

TEST(Device, TooFewGpusNamesTheRankAndWhatItSaw) {
  EXPECT_TRUE(holds(
      refused("auto", {2, "CUDA_VISIBLE_DEVICES=0,1"}),
      {"rank 6 is local rank 2 of 4", "2 visible GPUs", "CUDA_VISIBLE_DEVICES=0,1", "host n2", "at most 2"}));
  EXPECT_TRUE(holds(refused("cuda", {0, "no CUDA driver"}), {"rank 6 has no GPU", "no CUDA driver", "cpu"}));
  EXPECT_TRUE(holds(refused("gpu", {4, "test"}), {"(got gpu)"}));
}

}  // namespace lockstep
