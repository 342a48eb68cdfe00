#include "tools/submit/submission.h"

#include <gtest/gtest.h>

#include "refusal.h"
#include "temp_folder.h"

namespace lockstep::submit {
namespace {

class Wanted : public ::testing::Test {
 protected:
  WantedJob job(const std::vector<std::string>& sets = {}) const { return {.config = config_, .sets = sets}; }

  test::TempFolder scratch_;
  const std::string config_ = scratch_.write("c.yaml", "run: {dir: '${PBS_JOBFS}/runs'}\n");
  const std::string site_file_ = scratch_.write("mine.yaml", "scheduler: pbs\n");
  const cluster::Site site_ = cluster::load_site(site_file_);
};

TEST_F(Wanted, JobIsRenderedAsItWasAskedFor) {
  auto asked = job({"optim.lr=0.5"});
  asked.nodes = 2, asked.gpus_per_node = 4, asked.ranks_per_node = 8, asked.cores_per_rank = 3;
  asked.time = "1h30m", asked.queue = "gpu", asked.account = "a00", asked.storage = "home",
  asked.name = "mine";
  const auto wanted = request(asked, site_);
  EXPECT_EQ((std::vector{wanted.nodes, wanted.gpus_per_node, wanted.ranks_per_node, wanted.cores_per_rank}),
            (std::vector<int64_t>{2, 4, 8, 3}));
  EXPECT_EQ(wanted.time, std::chrono::minutes(90));
  EXPECT_EQ((std::vector{wanted.config, wanted.queue, wanted.account, wanted.storage, wanted.name,
                         wanted.sets.at(0)}),
            (std::vector<std::string>{config_, "gpu", "a00", "home", "mine", "optim.lr=0.5"}));
}

TEST_F(Wanted, JobGetsNoGpusWhereTheConfigWantsNone) {
  EXPECT_EQ(request(job(), site_).gpus_per_node, -1);  // all that the site's nodes have
  EXPECT_EQ(request(job({"launch.device=cpu"}), site_).gpus_per_node, 0);
  auto asked = job({"launch.device=cpu"});
  asked.gpus_per_node = 1;
  EXPECT_EQ(request(asked, site_).gpus_per_node, 1);
}

TEST_F(Wanted, JobThatIsWrongIsRefusedAtOnce) {
  auto asked = job();
  asked.time = "soon";
  EXPECT_EQ(test::refusal_of([&] { request(asked, site_); }),
            "--time soon: no time /  / as in --time 30m, --time 2h or --time 1h30m");
  EXPECT_NE(test::refusal_of([&] { request(job({"optim.lr=fast"}), site_); }).find("optim.lr"),
            std::string::npos);
}

TEST_F(Wanted, SiteAndSchedulerAgree) {
  auto asked = job();
  asked.site = site_file_;
  EXPECT_EQ(find_site(asked, "pbs").name, "mine");
  EXPECT_EQ(test::refusal_of([&] { find_site(asked, "slurm"); }),
            "mine is a site of pbs, not of slurm / " + site_file_ + " / say pbs in its place");
}

TEST_F(Wanted, FolderIsSharedWhereTheJobAloneKnowsItsRuns) {
  EXPECT_EQ(shared_run_dir(job(), site_), "runs");
  EXPECT_EQ(shared_run_dir(job({"run.dir=/data/runs"}), site_), "/data/runs");
  EXPECT_EQ(shared_run_dir(job({"run.dir=${PBS_O_WORKDIR}/r"}), site_),
            std::filesystem::current_path().string() + "/r");
}

}  // namespace
}  // namespace lockstep::submit
