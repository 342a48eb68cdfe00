#include "trainer/run_folder/status.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "temp_folder.h"
#include "trainer/run_folder/folder.h"

namespace lockstep::run_folder {
namespace {

class StatusTest : public ::testing::Test {
 protected:
  std::optional<RunLock> make() {
    std::filesystem::create_directory(path("mnist"));
    return RunLock::take(path("mnist"));
  }
  std::filesystem::path path(const std::string& name) const { return scratch_.path() / name; }
  void leave(RunState state, const std::string& reason) {
    RunStatus status;
    status.state = state;
    status.reason = reason;
    write_status(path("mnist"), status);
  }
  test::TempFolder scratch_;
};

TEST_F(StatusTest, NamesTheNewestCheckpointThereIs) {
  make();
  leave(RunState::stopped_early, "SIGTERM");
  std::filesystem::create_directory(path("mnist") / "checkpoints");
  for (const char* name : {"step-00000009.pt", "step-00000010.pt"})
    base::replace_file(path("mnist") / "checkpoints" / name, "");
  EXPECT_NE(job_status(path("mnist")).text.find("checkpoints/step-00000010.pt"), std::string::npos);
}

TEST_F(StatusTest, ForProgramsIsOneObject) {
  make();
  leave(RunState::running, "a \"reason\" with \xff bytes");
  std::filesystem::create_directory(path("mnist") / "checkpoints");
  const auto newest = path("mnist") / "checkpoints" / "step-00000010.pt";
  base::replace_file(newest, "");
  const auto json = nlohmann::json::parse(to_json(job_status(path("mnist"))));
  EXPECT_EQ(json["state"], "failed");  // nobody holds it
  EXPECT_EQ(json["exit_status"], kFailed);
  EXPECT_EQ(json["checkpoint"], newest.string());
  EXPECT_TRUE(json["loss"].is_null() && json["step"].is_number_integer());
}

TEST_F(StatusTest, TellsADeadRunFromARunningOne) {
  {
    const auto running = make();
    leave(RunState::running, "");
    EXPECT_EQ(job_status(path("mnist")).text.rfind("running", 0), 0u);
    EXPECT_EQ(job_status(path("mnist")).exit_status, kRunning);
  }
  const auto dead = job_status(path("mnist"));
  EXPECT_EQ(dead.text.rfind("failed", 0), 0u) << dead.text;
  EXPECT_EQ(dead.exit_status, kFailed);
}

TEST_F(StatusTest, IsWrittenInPlaceWhereASecondFileHasNoRoom) {
  const auto running = make();
  leave(RunState::running, "");
  std::filesystem::create_directory(path("mnist") / format(".status.json.{}.partial", ::getpid()));
  leave(RunState::failed, "the disk is full");
  EXPECT_EQ(read_status(path("mnist")).reason, "the disk is full");
  leave(RunState::done, "");
  EXPECT_EQ(read_status(path("mnist")).state, RunState::done);
}

// 4 cores for 10 s in one job with a relaunch, then 2 cores in the next job, after 60 s in the queue.
TEST(Cost, AddsUpAttemptsAndJobs) {
  Cost cost;
  const double now = unix_now();
  begin_attempt(cost, format("{},4,1,7", now - 10), 2, 0);
  charge(cost);
  EXPECT_NEAR(cost.core_seconds, 40, 4);
  EXPECT_NEAR(cost.gpu_seconds, 10, 1);
  begin_attempt(cost, format("{},4,0,7", now - 10), 2, 2);
  EXPECT_NEAR(cost.core_seconds, 40, 4);
  EXPECT_EQ(cost.gpus, 2);
  EXPECT_EQ(cost.queue_seconds, 7);
  cost.until = now - 100;  // its job was killed then
  begin_attempt(cost, format("{},2,0,60", now - 10), 8, 0);
  charge(cost);
  EXPECT_NEAR(cost.core_seconds, 60, 6);
  EXPECT_EQ(cost.queue_seconds, 67);
  cost.until = now - 100;
  begin_attempt(cost, "", 8, 0);  // without lockstep job
  charge(cost);
  EXPECT_NEAR(cost.core_seconds, 60, 20);
}

TEST(Cost, NamesTheSourceOfTheEnergy) {
  Cost cost{.core_seconds = 4500, .gpu_seconds = 900, .queue_seconds = 12, .peak_memory = 0.5 * (1 << 30)};
  EXPECT_EQ(
      in_words(cost),
      "1.250 core-hours, 0.250 GPU-hours, 12s in the queue, at most 0.50 GiB a rank, energy not measured");
  cost.energy_joules = 3.6e6;
  cost.energy_source = "RAPL";
  EXPECT_TRUE(in_words(cost).ends_with(", 1.000 kWh (RAPL)"));
}

TEST_F(StatusTest, KeepsTheCost) {
  const auto held = make();
  RunStatus status;
  begin_attempt(status.cost, format("{},4,0,0", unix_now() - 10), 1, 0);
  write_status(path("mnist"), status);
  const auto json = nlohmann::json::parse(to_json(job_status(path("mnist"))));
  EXPECT_NEAR(json["cost"]["core_seconds"].get<double>(), 40, 20);
  EXPECT_TRUE(json["cost"]["energy_joules"].is_null());
  base::replace_file(path("mnist") / "status.json", R"({"state": "done"})");  // of an older lockstep
  EXPECT_EQ(job_status(path("mnist")).text.find("used"), std::string::npos);
}

TEST_F(StatusTest, HasTheExitStatusOfTheContract) {
  make();
  const std::pair<RunState, int> cases[] = {
      {RunState::done, kDone}, {RunState::stopped_early, kStoppedEarly}, {RunState::failed, kFailed}};
  for (const auto& [state, wanted] : cases) {
    leave(state, "a \"reason\" with \xff bytes");
    EXPECT_EQ(job_status(path("mnist")).exit_status, wanted) << name_of(state);
  }
}

TEST_F(StatusTest, OfAnothersMakingIsBadInputInOurOwnWords) {
  make();
  for (const char* text :
       {"", "{\"state\": \"done\"", "null", "[]", "{}", "{\"state\": 3}", "{\"state\": null}",
        "{\"state\": \"lost\"}", "{\"state\": \"done\", \"step\": \"many\"}",
        "{\"state\": \"done\", \"reason\": 7}", "{\"state\": \"done\", \"seconds\": []}",
        "{\"state\": \"done\", \"pid\": null}", "{\"state\": \"done\", \"cost\": {\"cores\": \"x\"}}"}) {
    base::replace_file(path("mnist") / "status.json", text);
    try {
      job_status(path("mnist"));
      ADD_FAILURE() << text;
    } catch (const InputError& error) {
      EXPECT_EQ(std::string(error.what()).find("json.exception"), std::string::npos) << error.what();
      EXPECT_EQ(error.where(), path("mnist") / "status.json");
      EXPECT_FALSE(error.hint().empty());
    }
  }
}

TEST_F(StatusTest, APipeIsNotWaitedFor) {
  make();
  ASSERT_EQ(::mkfifo((path("mnist") / "status.json").c_str(), 0600), 0);
  EXPECT_THROW(job_status(path("mnist")), InputError);
}

}  // namespace
}  // namespace lockstep::run_folder
