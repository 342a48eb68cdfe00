#include "tools/submit/submission.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "lockstep/base/text.h"
#include "refusal.h"
#include "temp_folder.h"

namespace lockstep::submit {
namespace {

using test::has;

class Planned : public ::testing::Test {
 protected:
  Plan plan(const std::vector<std::string>& sweeps, int64_t links, const std::string& site) const {
    const cluster::JobRequest job{.config = config_, .site = site};
    return make_plan(job, "", sweeps, links);
  }
  Plan plan(const std::vector<std::string>& sweeps = {}, int64_t links = 1) const {
    return plan(sweeps, links, slurm_);
  }

  test::TempFolder scratch_;
  const std::string runs_ = scratch_ / "runs";
  const std::string config_ = scratch_.write("c.yaml", "run: {name: mine, dir: '" + runs_ + "'}\n");
  const std::string slurm_ = scratch_.write("slurm.yaml", "scheduler: slurm\n");
  const std::string bare_ = scratch_.write("bare.yaml", "scheduler: slurm\narrays: no\n");
};

TEST_F(Planned, JobsKeepTheirFilesBesideTheRunsAndNothingIsWritten) {
  const auto one = plan();
  EXPECT_EQ(one.stem.parent_path(), runs_ + "/.jobs");
  EXPECT_EQ(file_of(one, 1, ".sh"), one.stem.string() + ".sh");
  EXPECT_TRUE(has(commands_and_scripts(one), "sbatch"));
  EXPECT_FALSE(std::filesystem::exists(runs_));
}

TEST_F(Planned, LinksOfAChainWaitForTheOneBefore) {
  const auto chain = plan({}, 3);
  EXPECT_EQ(file_of(chain, 2, ".record"), chain.stem.string() + ".2.record");
  EXPECT_FALSE(has(script_of(chain, 1, ""), "afterany"));
  EXPECT_TRUE(has(script_of(chain, 2, "17"), "afterany:17"));
  EXPECT_TRUE(has(script_of(chain, 2, "17"), "LOCKSTEP_LINK=2"));
  const auto text = commands_and_scripts(chain);
  EXPECT_TRUE(has(text, "afterany:JOB-OF-LINK-1") && has(text, "afterany:JOB-OF-LINK-2"));
}

TEST_F(Planned, SweepHasATaskForEachCombinationWhoseConfigIsRight) {
  EXPECT_EQ(plan({"optim.lr=0.1,0.01", "run.seed=0..2"}, 1).request.sweep.size(), 6u);
  EXPECT_TRUE(has(test::refusal_of([&] { plan({"optim.lr=0.1,fast"}, 1); }), "optim.lr"));
}

TEST_F(Planned, SweepIsRefusedWhereTheSiteTakesNoArrays) {
  EXPECT_EQ(test::refusal_of([&] { plan({"run.seed=0..2"}, 1, bare_); }),
            "the site bare has no job arrays, which --sweep needs / " + bare_ +
                " / submit each run separately, with --set");
}

TEST_F(Planned, ASweepOfOneTaskIsNoArrayOnPbs) {
  EXPECT_EQ(plan({"run.seed=7"}, 1).request.sweep.size(), 1U) << "on Slurm it is one";
  const auto one = plan({"run.seed=7"}, 1, scratch_.write("pbs.yaml", "scheduler: pbs\n")).request;
  EXPECT_TRUE(one.sweep.empty());
  EXPECT_EQ(one.sets, (std::vector<std::string>{"run.seed=7", "run.name=mine-seed7"}));
}

TEST_F(Planned, ASignalWaitsForTheIdThatSbatchPrints) {
  const auto sbatch = scratch_.write("sbatch", "#!/bin/sh\nkill -TERM $PPID\nsleep 0.2\necho 7\n");
  std::filesystem::permissions(sbatch, std::filesystem::perms::owner_all);
  const auto submit = [&] {
    ::setenv("PATH", (scratch_.path().string() + ":" + std::getenv("PATH")).c_str(), 1);
    submit_all(plan());
  };
  EXPECT_EXIT(submit(), ::testing::KilledBySignal(SIGTERM), "scancel 7");
}

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

TEST(Record, FollowsAJobThroughItsRestarts) {
  const auto running = parse_record("begin 7\nfile 7 /a b/.run\nend 7");  // the last line is incomplete
  EXPECT_TRUE(running.started && !running.status && running.run_file == "/a b/.run");
  const auto again = parse_record("begin 7\nbegin 7\nend 7 75 /a b/runs/x\n");
  EXPECT_EQ(again.restarts, 1);
  EXPECT_EQ(again.status, 75);
  EXPECT_EQ(again.folder, "/a b/runs/x");
  for (const auto* text : {"", "\n\n", "begin", "end 7 fast /x\n", "what ever\n\x01\n"})
    EXPECT_FALSE(parse_record(text).status) << text;
}

TEST(Record, FollowsTheJobThatReplacesAnother) {
  const auto replaced = parse_record("begin 7.x\nnext 7.x 8.x\nend 7.x 75 \nbegin 7.x\nend 7.x 75 \n");
  EXPECT_EQ(replaced.job, "8.x");
  EXPECT_TRUE(replaced.replaced && !replaced.status);
  EXPECT_EQ(parse_record("begin 7.x\nnext 7.x 8.x\nend 7.x 75 \nbegin 8.x\nend 8.x 0 /r\n").status, 0);
}

TEST(JobWatch, WaitsForTheRecordOfAnUnknownJobWithinBounds) {
  const test::TempFolder folder;
  JobWatch patient{"7", folder.path() / "r", {.over = {}, .unknown = std::chrono::hours(1)}};
  JobWatch impatient{"7", folder.path() / "r", {.over = std::chrono::hours(1), .unknown = {}}};
  const auto run = folder.write("run", folder.path().string()), record = "begin 7\nfile 7 " + run + "\n";
  folder.write("status.json", R"({"state": "running"})");
  folder.write("lock", R"({"host":"x","place":"x","pid":1,"started":1,"since":1})");
  JobWatch running{"7", folder.write("record", record), {.unknown = {}}};
  for (auto* watch : {&patient, &impatient, &running}) {
    watch->update();
    watch->set_state({cluster::JobState::unknown, "unknown to squeue"});
  }
  JobWatch early{"7", folder.write("early", "begin 7\nend 7 75 " + folder.path().string() + "\n"), {}};
  early.update();
  early.set_state({cluster::JobState::gone, "F"});
  EXPECT_EQ(early.update(), JobWatch::over);
  EXPECT_EQ(early.status, kStoppedEarly) << "the chain's next job runs in its folder";
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(patient.update(), JobWatch::queued);
  EXPECT_EQ(running.update(), JobWatch::running) << "its run goes on";
  EXPECT_EQ(impatient.update(), JobWatch::over);
  EXPECT_FALSE(impatient.record.status);
  EXPECT_EQ(impatient.state->words, "unknown to squeue");
}

TEST(JobWatch, WaitsForASilentSchedulerAfterTheScriptsEndWithinBounds) {
  const test::TempFolder folder;
  const auto record = folder.path() / "r";
  std::ofstream(record) << "begin 7\nend 7 0\n";
  JobWatch patient{"7", record};
  JobWatch impatient{"7", record, {.silent = {}}};
  for (auto* watch : {&patient, &impatient}) watch->update();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(patient.update(), JobWatch::running);
  EXPECT_EQ(impatient.update(), JobWatch::over);
  EXPECT_EQ(impatient.status, 0);
  EXPECT_TRUE(impatient.record.status);
}

// The scheduler may restart the same job whatever its script ended with.
class WatchOfAnEnd : public ::testing::TestWithParam<const char*> {};

TEST_P(WatchOfAnEnd, WaitsForTheScheduler) {
  const test::TempFolder folder;
  const auto record = folder.path() / "r";
  JobWatch watch{"7", record};
  std::ofstream(record) << "begin 7\n";
  watch.update();
  watch.set_state({cluster::JobState::gone, "said before the record's end"});
  std::ofstream(record, std::ios::app) << "end 7 " << GetParam() << "\n";
  EXPECT_EQ(watch.update(), JobWatch::running);
  watch.set_state({cluster::JobState::running, "COMPLETING"});
  EXPECT_EQ(watch.update(), JobWatch::running);
  watch.set_state({cluster::JobState::queued, "PENDING (BeginTime)"});
  EXPECT_EQ(watch.update(), JobWatch::queued);
  std::ofstream(record, std::ios::app) << "begin 7\n";
  EXPECT_EQ(watch.update(), JobWatch::running);
  std::ofstream(record, std::ios::app) << "end 7 0\n";
  EXPECT_EQ(watch.update(), JobWatch::running);
  watch.set_state({cluster::JobState::gone, "COMPLETED"});
  EXPECT_EQ(watch.update(), JobWatch::over);
  EXPECT_EQ(watch.status, 0);
  EXPECT_EQ(watch.record.restarts, 1);
}

INSTANTIATE_TEST_SUITE_P(, WatchOfAnEnd, ::testing::Values("75", "1", "143", "0"));

}  // namespace
}  // namespace lockstep::submit
