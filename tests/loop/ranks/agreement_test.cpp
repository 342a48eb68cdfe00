// What ranks of a run agree on: a stop, a time line, the config.
#include "lockstep/parallel/team.h"

#include <gtest/gtest.h>
#include <torch/types.h>
#include <torch/utils.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/libtorch.h"
#include "lockstep/tasks/collective/sets.h"
#include "loop/ranks/team.h"
#include "ranks.h"
#include "refusal.h"
#include "trainer/loop/watch.h"
#include "trainer/observe/trace.h"
#include "trainer/setup/setup.h"

namespace lockstep::train {
namespace {

using test::team;

TEST(Agreement, AWordOnOneRankIsHeardByAll) {
  Agreement agreement(team());
  RankReport word;
  word.loss = team().rank();
  EXPECT_EQ(agreement.ask(1, word).stop, Stop::no);
  if (team().rank() == team().world() - 1) word.signal = 10;
  const auto verdicts = agreement.ask(2, word);
  EXPECT_EQ(verdicts.stop, Stop::signal);
  EXPECT_EQ(verdicts.signal, 10);
  EXPECT_DOUBLE_EQ(verdicts.loss, (team().world() - 1) / 2.0);
  word.not_finite = team().first();
  EXPECT_EQ(agreement.ask(3, word).stop, Stop::not_finite);
}

TEST(Agreement, DifferentSignalsAreNotMixed) {
  const std::pair<int, int> received[] = {{SIGUSR1, SIGTERM}, {SIGINT, SIGTERM}, {SIGUSR2, SIGUSR1}};
  for (const auto& [first, others] : received) {
    RankReport report;
    report.signal = team().first() ? first : others;
    EXPECT_EQ(Agreement(team()).ask(1, report).signal, others);
  }
}

TEST(Agreement, AllRanksAskNextAtTheSameStep) {
  Agreement agreement(team());
  int64_t step = 0;
  for (int round = 0; round < 20; ++round) {
    do {
      ++step;
    } while (!agreement.due(step));
    std::vector<double> ends{static_cast<double>(step), -static_cast<double>(step)};
    team().max(ends);
    ASSERT_EQ(ends[0], -ends[1]) << "round " << round;
    agreement.ask(step, {});
  }
  EXPECT_GT(step, 20) << "quick steps are not asked about one by one";
}

// One time line of all ranks.

TEST(CompareClocks, ClaimsAnErrorThatHolds) {
  const auto readings = compare_clocks(team());
  ASSERT_EQ(readings.size(), static_cast<size_t>(team().world()));
  EXPECT_EQ(readings[0].ahead, 0);
  EXPECT_NEAR(readings.back().ahead, 0, readings.back().error + 1e3);  // the ranks share a host
  EXPECT_LT(readings.back().error, 50e6);
}

// A load may take longer than a collective may.

using namespace std::chrono_literals;

TEST(Load, MayTakeLongerThanACollective) {
  for (const auto* backend : {"gloo", "shared"}) {
    const auto group = comm::connect(test::runtime(), {.backend = backend, .timeout = 60s});
    const Team team(test::runtime().job(), group, at::kCPU);
    const auto share = tasks::node_share(team);
    base::set_timeout(*group->getBackend(c10::kCPU), 200ms);
    if (team.first()) std::this_thread::sleep_for(1s);
    EXPECT_NO_THROW(share.exchange("")) << backend;
  }
}

// One config for the job: rank 0's file and variables, everybody's own stage, the same error for all.

namespace fs = std::filesystem;

// Only rank 0 is given a file that exists: whoever else opened its path would fail.
class JobConfigTest : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    const int rank = test::runtime().job().rank;
    const auto name = "lockstep_job_config_" + std::to_string(getpid()) + ".yaml";
    path_ = (fs::temp_directory_path() / name).string();
    if (rank == 0) std::ofstream(path_) << text;
    return path_;
  }
  void TearDown() override {
    std::error_code none;
    fs::remove(path_, none);
  }
  std::string path_;
};

TEST_F(JobConfigTest, ComesFromRankZeroAlone) {
  const auto& runtime = test::runtime();
  const std::string rank = std::to_string(runtime.job().rank);
  ::setenv("LOCKSTEP_TEST_WHO", ("rank" + rank).c_str(), 1);
  if (runtime.job().rank == 0) ::setenv("LOCKSTEP_TEST_ONLY_ZERO", "zero", 1);
  const std::string file = write(
      "run: {dir: \"${LOCKSTEP_TEST_WHO}/${LOCKSTEP_TEST_ONLY_ZERO}\"}\n"
      "data: {stage: \"/tmp/${LOCKSTEP_TEST_WHO}\"}\n");
  const config::Loaded loaded = load_for_job(runtime, file, {"run.name=x-${LOCKSTEP_TEST_WHO}"}).loaded;
  EXPECT_EQ(loaded.settings.run.dir, "rank0/zero");
  EXPECT_EQ(loaded.settings.run.name, "x-rank0");
  EXPECT_EQ(loaded.settings.data.stage, "/tmp/rank" + rank);
  EXPECT_EQ(runtime.all_gather(loaded.origins.at("run.dir").text).back(), loaded.origins.at("run.dir").text);
}

std::string refusal(const std::string& path) {
  return describe(test::error_from([&] { load_for_job(test::runtime(), path, {}); }));
}

TEST_F(JobConfigTest, MistakesAreMetByAllAlike) {
  for (const char* text : {"train: {epoch: 3}", "train: [", "run: {dir: \"${LOCKSTEP_TEST_NOT_SET}\"}"}) {
    const std::string error = refusal(write(text));
    for (const std::string& other : test::runtime().all_gather(error)) EXPECT_EQ(other, error);
  }
  const std::string missing = "/nowhere/" + std::to_string(test::runtime().job().rank) + ".yaml";
  EXPECT_TRUE(test::has(refusal(missing), "/nowhere/0.yaml"));
}

}  // namespace
}  // namespace lockstep::train
