#include "trainer/run_folder/status.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "refusal.h"
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

TEST_F(StatusTest, ForProgramsIsOneObject) {
  make();
  leave(RunState::running, "a \"reason\" with \xff bytes");
  std::filesystem::create_directory(path("mnist") / "checkpoints");
  for (const char* name : {"step-00000009.pt", "step-00000010.pt"})
    base::replace_file(path("mnist") / "checkpoints" / name, "");
  const auto newest = path("mnist") / "checkpoints" / "step-00000010.pt";
  const auto json = nlohmann::json::parse(to_json(job_status(path("mnist"))));
  EXPECT_EQ(json["state"], "failed");  // nobody holds it
  EXPECT_EQ(json["exit_status"], kFailed);
  EXPECT_EQ(json["checkpoint"], newest.string());
  EXPECT_TRUE(json["loss"].is_null() && json["step"].is_number_integer());
}

TEST(Cost, OfABatchJobIsInWholeSeconds) {
  Cost cost;
  begin_attempt(cost, format("{:.0f},3,0,0", unix_now() - 100), 1, 0);
  charge(cost);
  EXPECT_GE(cost.core_seconds, 3 * 99);
  EXPECT_EQ(std::fmod(cost.core_seconds, 3), 0);
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

TEST_F(StatusTest, OfAnothersMakingIsBadInputInOurOwnWords) {
  make();
  for (const char* text :
       {"", "{\"state\": \"done\"", "null", "[]", "{}", "{\"state\": 3}", "{\"state\": null}",
        "{\"state\": \"lost\"}", "{\"state\": \"done\", \"step\": \"many\"}",
        "{\"state\": \"done\", \"reason\": 7}", "{\"state\": \"done\", \"seconds\": []}",
        "{\"state\": \"done\", \"pid\": null}", "{\"state\": \"done\", \"cost\": {\"cores\": \"x\"}}"}) {
    base::replace_file(path("mnist") / "status.json", text);
    const auto error = test::error_from([&] { job_status(path("mnist")); });
    EXPECT_FALSE(test::has(error.what(), "json.exception")) << text;
    EXPECT_EQ(error.where(), path("mnist") / "status.json");
    EXPECT_FALSE(error.hint().empty());
  }
}

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class Asking : public ::testing::Test {
 protected:
  test::TempFolder scratch_;
  fs::path folder_ = scratch_.path();
};

TEST_F(Asking, HoldsUntilItIsAnswered) {
  Requests requests(folder_);
  ask(folder_, RunRequest::checkpoint);
  EXPECT_TRUE(requests.asked(RunRequest::checkpoint));
  EXPECT_FALSE(requests.asked(RunRequest::stop));
  requests.answer(RunRequest::checkpoint);
  EXPECT_FALSE(requests.asked(RunRequest::checkpoint));
  EXPECT_FALSE(fs::exists(request_file(folder_, RunRequest::checkpoint)));
}

TEST_F(Asking, AStaleOneStopsNoLaterAttempt) {
  ask(folder_, RunRequest::stop);
  Requests next(folder_);  // removes what it finds
  EXPECT_FALSE(fs::exists(request_file(folder_, RunRequest::stop)));
}

TEST_F(Asking, AFolderOfThatNameIsInTheWay) {
  fs::create_directory(request_file(folder_, RunRequest::checkpoint));
  EXPECT_THROW(ask(folder_, RunRequest::checkpoint), InputError);
}

TEST_F(Asking, APipeOfThatNameIsNotWaitedFor) {
  Requests requests(folder_);
  ASSERT_EQ(::mkfifo(request_file(folder_, RunRequest::stop).c_str(), 0600), 0);
  EXPECT_FALSE(requests.asked(RunRequest::stop));
}

TEST_F(Asking, LooksOnceASecond) {
  Requests requests(folder_);
  EXPECT_FALSE(requests.asked(RunRequest::stop));
  ask(folder_, RunRequest::stop);
  EXPECT_FALSE(requests.asked(RunRequest::stop)) << "looked at a moment ago";
  std::this_thread::sleep_for(1100ms);
  EXPECT_TRUE(requests.asked(RunRequest::stop));
}

}  // namespace
}  // namespace lockstep::run_folder
