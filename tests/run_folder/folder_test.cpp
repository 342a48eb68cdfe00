#include "trainer/run_folder/folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "refusal.h"
#include "temp_folder.h"
#include "trainer/config/config_text.h"
#include "trainer/config/load.h"
#include "trainer/run_folder/recorder.h"
#include "trainer/run_folder/status.h"

namespace lockstep::run_folder {
namespace {

constexpr const char* kConfig =
    "run: {name: mnist, dir: runs}\nlaunch: {device: cpu}\ntrain: {epochs: 2, max_steps: 0}\noptim: {lr: "
    "0.01}\n";

std::string with(std::string config, const std::string& from, const std::string& to) {
  return config.replace(config.find(from), from.size(), to);
}

class RunFolderTest : public ::testing::Test {
 protected:
  // As `train` does; `said_` is what it logs.
  RunFolder open(const std::string& resume = "", const std::string& config = kConfig) {
    ::testing::internal::CaptureStderr();
    std::optional<RunFolder> folder;
    try {
      if (!resume.empty()) folder = resume_run(here(config), resume);
    } catch (...) {
      ::testing::internal::GetCapturedStderr();
      throw;
    }
    said_ = ::testing::internal::GetCapturedStderr();
    goes_on_ = folder.has_value();
    return goes_on_ ? std::move(*folder) : new_run(here(config));
  }
  Settings here(const std::string& config, const std::string& name = "mnist") const {
    auto settings = config::load_settings(config, "config.yaml").settings;
    settings.run = {.name = name, .dir = scratch_.path().string(), .seed = 0};
    return settings;
  }
  std::filesystem::path path(const std::string& name) const { return scratch_.path() / name; }
  void leave(const std::string& name, RunState state, const std::string& reason, int64_t epoch = 0) {
    RunStatus status;
    status.state = state;
    status.reason = reason;
    status.epoch = epoch;
    status.seconds = 10;
    write_status(path(name), status);
  }
  test::TempFolder scratch_;
  std::string said_;
  bool goes_on_ = false;
};

TEST_F(RunFolderTest, TakesTheFirstFreeName) {
  EXPECT_EQ(open().path, path("mnist"));
  EXPECT_EQ(open().path, path("mnist-2"));
  std::filesystem::create_directory(path("mnist-3"));
  base::replace_file(path("mnist-3") / "notes.txt", "somebody else's");
  EXPECT_EQ(open().path, path("mnist-4"));
  EXPECT_EQ(base::read_text(path("mnist-4") / "config.yaml"), config::to_yaml(here(kConfig)));
}

TEST_F(RunFolderTest, TakesWhatAStartThatWasKilledLeft) {
  std::filesystem::create_directory(path("mnist"));
  EXPECT_EQ(open().path, path("mnist"));
  std::filesystem::create_directory(path("mnist-2"));
  base::replace_file(path("mnist-2") / "lock", "");
  base::replace_file(path("mnist-2") / ".config.yaml.4242.partial", "run: {na");
  EXPECT_EQ(open("auto", with(kConfig, "lr: 0.01", "lr: 0.1")).path, path("mnist-2"));
  EXPECT_FALSE(std::filesystem::exists(path("mnist-2") / ".config.yaml.4242.partial"));
}

TEST_F(RunFolderTest, AnOldFolderIsTouchedOnlyWhenTheRunBeginsThere) {
  (void)open();
  const auto partial = path("mnist") / "checkpoints" / ".step-00000007.pt.4242.partial";
  std::filesystem::create_directory(partial.parent_path());
  base::replace_file(partial, "half");
  base::replace_file(path("mnist") / ".status.json.4242.partial", "half");
  const auto other = with(kConfig, "lr: 0.01", "lr: 0.1");
  const auto folder = open(path("mnist").string(), other);
  EXPECT_EQ(base::read_text(path("mnist") / "config.yaml"), config::to_yaml(here(kConfig)));
  EXPECT_TRUE(std::filesystem::exists(partial));
  begin_in(folder.path, here(other));
  EXPECT_EQ(base::read_text(path("mnist") / "config.yaml"), config::to_yaml(here(other)));
  EXPECT_FALSE(std::filesystem::exists(partial));
  EXPECT_FALSE(std::filesystem::exists(path("mnist") / ".status.json.4242.partial"));
}

TEST_F(RunFolderTest, JobsAtOnceGetDifferentFolders) {
  constexpr int kJobs = 12;
  for (int i = 0; i < kJobs; ++i) {
    if (::fork() != 0) continue;
    const auto folder = new_run(here(kConfig));
    ::usleep(20'000);
    ::_exit(0);
  }
  for (int i = 0; i < kJobs; ++i) {
    int status = 1;
    ::wait(&status);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch_.path()), {}), kJobs);
}

TEST_F(RunFolderTest, AutoGoesOnWithTheNewestUnfinished) {
  (void)open();
  (void)open();
  leave("mnist-2", RunState::stopped_early, "SIGTERM");
  EXPECT_EQ(open("auto").path, path("mnist-2"));
}

TEST_F(RunFolderTest, AutoGoesOnWithADoneRunOnlyWhereItIsToBeLonger) {
  (void)open();
  leave("mnist", RunState::done, "epochs", 2);
  EXPECT_EQ(open("auto", with(kConfig, "epochs: 2", "epochs: 3")).path, path("mnist"));
  EXPECT_EQ(open("auto").path, path("mnist-2"));
  const auto limited = with(kConfig, "max_steps: 0", "max_seconds: 10");
  EXPECT_EQ(open("", limited).path, path("mnist-3"));
  leave("mnist-3", RunState::done, "max_seconds");
  EXPECT_EQ(open("auto", with(limited, "seconds: 10", "seconds: 20")).path, path("mnist-3"));
  EXPECT_EQ(open("auto", limited).path, path("mnist-4"));
}

TEST_F(RunFolderTest, ARunningOneIsLeftAlone) {
  const auto running = open();
  EXPECT_EQ(open("auto").path, path("mnist-2"));
  EXPECT_TRUE(test::has(said_, "in use"));
  EXPECT_THROW(open(path("mnist").string()), InputError);
}

TEST_F(RunFolderTest, AnotherUsersFolderIsNotUsed) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make one";
  (void)open();
  std::filesystem::create_directory(path("mnist-2"));  // as a killed start leaves it
  for (const char* name : {"mnist", "mnist-2"}) ASSERT_EQ(::chown(path(name).c_str(), 12345, 12345), 0);
  EXPECT_EQ(open("auto").path, path("mnist-3"));
}

TEST_F(RunFolderTest, AutoNamesTheKeysThatDiffer) {
  (void)open();
  const auto folder = open("auto", with(kConfig, "lr: 0.01", "lr: 0.1"));
  EXPECT_EQ(folder.path, path("mnist-2"));
  EXPECT_TRUE(
      test::has(said_, path("mnist").string() + " has a different config: optim.lr (was 0.01, is 0.1)"));
}

TEST_F(RunFolderTest, WhatANewerLockstepWroteIsNamed) {
  (void)open();
  base::replace_file(path("mnist") / "config.yaml",
                     with(kConfig, "lr: 0.01", "lr: 0.01, name: lion, warp: 9"));
  (void)open("auto");
  EXPECT_TRUE(test::has(said_, "optim.name (was lion, is sgd), optim.warp (was 9, is not set)"));
  (void)open(path("mnist").string());
  EXPECT_TRUE(goes_on_) << "by its path it is the user's to know";
  EXPECT_TRUE(test::has(said_, "optim.warp"));
}

TEST_F(RunFolderTest, AConfigThatCannotBeReadIsPassedOverAloud) {
  for (const char* text : {"run: {name: mnist", "", "- 1\n", "hello\n"}) {
    (void)open();
    base::replace_file(path("mnist") / "config.yaml", text);
    const auto folder = open("auto");
    EXPECT_FALSE(goes_on_);
    EXPECT_TRUE(test::has(said_, "is skipped"));
    EXPECT_THROW(open(path("mnist").string()), InputError);
    std::filesystem::remove_all(path("mnist"));
    std::filesystem::remove_all(folder.path);
  }
}

// In a folder of somebody else's it would lead to any file of this user's.
TEST_F(RunFolderTest, ALinkInPlaceOfAFileThatIsWrittenIsNotFollowed) {
  const auto mine = scratch_.write("mine", "a file of my own");
  const auto made = open().path;
  const auto lock = made / "lock", lines = made / "metrics.jsonl";
  for (const auto& name : {lock, lines}) {
    std::filesystem::remove(name);
    std::filesystem::create_symlink(mine, name);
  }
  (void)open(made.string());
  EXPECT_THROW(MetricsFile(lines, 0), InputError);
  EXPECT_EQ(base::read_text(mine), "a file of my own");
}

TEST_F(RunFolderTest, ANameThatEndsInANumberIsAnotherRun) {
  (void)new_run(here(kConfig, "mnist-2"));
  EXPECT_EQ(open("auto").path, path("mnist"));
}

TEST_F(RunFolderTest, APlaceThatCannotBeWrittenIsKnownBeforeAnythingIsMade) {
  auto settings = here(kConfig);
  settings.run.dir = "/proc/nothing";
  EXPECT_THROW(new_run(settings), InputError);
  base::replace_file(path("file"), "");
  for (const auto& dir : {std::string("/proc/nothing/here"), (path("file") / "runs").string()})
    EXPECT_THROW(check_run_dir({.name = "x", .dir = dir, .seed = 0}), InputError) << dir;
  check_run_dir({.name = "x", .dir = path("not") / "yet", .seed = 0});
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch_.path()), {}), 1) << "a trace is left";
}

TEST_F(RunFolderTest, AFolderOfAnothersMakingIsReadWithinBounds) {
  std::string laughs = "a: &a0 {}\n";  // 20^12 maps, written out
  for (int level = 1; level <= 12; ++level) {
    laughs += format("b{0}: &a{0} {{", level);
    for (int i = 0; i < 20; ++i) laughs += format("k{}: *a{}, ", i, level - 1);
    laughs += "}\n";
  }
  EXPECT_THROW(config::read_past_config(laughs, "config.yaml"), InputError);
  std::filesystem::create_directory(path("mnist"));
  base::replace_file(path("mnist") / "status.json", std::string(5 << 20, '['));
  EXPECT_THROW(read_status(path("mnist")), InputError);
}

}  // namespace
}  // namespace lockstep::run_folder
