#include "tools/submit/submission.h"

#include <gtest/gtest.h>

#include "refusal.h"
#include "temp_folder.h"

namespace lockstep::submit {
namespace {

class Wanted : public ::testing::Test {
 protected:
  cluster::JobRequest job(const std::vector<std::string>& sets = {}) const {
    return {.config = config_, .sets = sets};
  }

  test::TempFolder scratch_;
  const std::string config_ = scratch_.write("c.yaml", "run: {dir: '${PBS_JOBFS}/runs'}\n");
  const std::string site_file_ = scratch_.write("mine.yaml", "scheduler: pbs\n");
  const cluster::Site site_ = cluster::load_site(site_file_);
};

TEST_F(Wanted, JobGetsNoGpusIfTheConfigUsesNone) {
  const auto gpus = [&](cluster::JobRequest request) {
    check_config(request, site_);
    return request.gpus_per_node;
  };
  EXPECT_EQ(gpus(job()), -1);  // all of the site's nodes
  EXPECT_EQ(gpus(job({"launch.device=cpu"})), 0);
  auto request = job({"launch.device=cpu"});
  request.gpus_per_node = 1;
  EXPECT_EQ(gpus(request), 1);
}

TEST_F(Wanted, ConfigAndSiteAreChecked) {
  auto request = job({"optim.lr=fast"});
  EXPECT_NE(test::refusal_of([&] { check_config(request, site_); }).find("optim.lr"), std::string::npos);
  request.site = site_file_;
  EXPECT_EQ(find_site(request, "pbs").name, "mine");
  EXPECT_EQ(test::refusal_of([&] { find_site(request, "slurm"); }),
            "the site mine uses pbs, not slurm / " + site_file_ + " / use pbs instead");
}

TEST_F(Wanted, FolderIsSharedWhereTheJobAloneKnowsItsRuns) {
  EXPECT_EQ(shared_run_dir(job(), site_), "runs");
  EXPECT_EQ(shared_run_dir(job({"run.dir=/data/runs"}), site_), "/data/runs");
  EXPECT_EQ(shared_run_dir(job({"run.dir=${PBS_O_WORKDIR}/r"}), site_),
            std::filesystem::current_path().string() + "/r");
}

}  // namespace
}  // namespace lockstep::submit
