#include "trainer/cli/job_options.h"

#include "support.h"
#include "temp_folder.h"

namespace lockstep::cli {
namespace {

class CliJobOptions : public ::testing::Test {
 protected:
  JobOptions& given(const std::string& line) {
    Options options("submit", "submits");
    job_.emplace().add_to(options);
    options.parse(test::words_of(line));
    return *job_;
  }
  cluster::JobRequest request(const std::string& line) { return given(line).request(config_, site_); }

  test::TempFolder scratch_;
  const std::string config_ = scratch_.write("c.yaml", "run: {dir: '${PBS_JOBFS}/runs'}\n");
  const std::string site_file_ = scratch_.write("mine.yaml", "scheduler: pbs\n");
  const cluster::Site site_ = cluster::load_site(site_file_);
  std::optional<JobOptions> job_;
};

TEST_F(CliJobOptions, DescribeAJob) {
  const auto asked = request(
      "--nodes 2 --gpus-per-node 4 --ranks-per-node 8 --cpus-per-rank 3 --time 1h30m --queue gpu --account "
      "a00 "
      "--storage home --name mine --set optim.lr=0.5");
  EXPECT_EQ((std::vector{asked.nodes, asked.gpus_per_node, asked.ranks_per_node, asked.cores_per_rank}),
            (std::vector<int64_t>{2, 4, 8, 3}));
  EXPECT_EQ(asked.time, std::chrono::minutes(90));
  EXPECT_EQ((std::vector{asked.queue, asked.account, asked.storage, asked.name, asked.sets.at(0)}),
            (std::vector<std::string>{"gpu", "a00", "home", "mine", "optim.lr=0.5"}));
}

TEST_F(CliJobOptions, AskForNoGpusWhereTheConfigWantsNone) {
  EXPECT_EQ(request("").gpus_per_node, -1);  // all that the site's nodes have
  EXPECT_EQ(request("--set launch.device=cpu").gpus_per_node, 0);
  EXPECT_EQ(request("--set launch.device=cpu --gpus-per-node 1").gpus_per_node, 1);
}

TEST_F(CliJobOptions, RefuseWhatIsWrongAtOnce) {
  EXPECT_EQ(test::refusal([&] { request("--time soon"); }),
            "--time soon: no time /  / as in --time 30m, --time 2h or --time 1h30m");
  EXPECT_TRUE(test::has(test::refusal([&] { request("--set optim.lr=fast"); }), "optim.lr"));
  EXPECT_EQ(given("--site " + site_file_).site("pbs").name, "mine");
  EXPECT_EQ(test::refusal([&] { given("--site " + site_file_).site("slurm"); }),
            "mine is a site of pbs, not of slurm / " + site_file_ + " / say pbs in its place");
}

TEST_F(CliJobOptions, ShareAFolderWhereTheJobAloneKnowsItsRuns) {
  EXPECT_EQ(given("").shared_run_dir(config_, site_), "runs");
  EXPECT_EQ(given("--set run.dir=/data/runs").shared_run_dir(config_, site_), "/data/runs");
  EXPECT_EQ(given("--set run.dir=${PBS_O_WORKDIR}/r").shared_run_dir(config_, site_),
            std::filesystem::current_path().string() + "/r");
}

}  // namespace
}  // namespace lockstep::cli
