// What rank 0 writes while it trains: with a heart of its own, and nowhere that is not the run's.
#include "trainer/run_folder/recorder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "temp_folder.h"
#include "trainer/run_folder/console.h"
#include "trainer/run_folder/folder.h"

namespace lockstep::run_folder {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

class RecorderTest : public ::testing::Test {
 protected:
  std::shared_ptr<HeldFolder> hold(std::chrono::milliseconds beat = 1h) {
    return std::make_shared<HeldFolder>(new_run(settings()), beat);
  }
  Settings settings() const {
    Settings settings;
    settings.run = {.name = "mnist", .dir = scratch_.path().string(), .seed = 0};
    return settings;
  }
  fs::path path(const std::string& name) const { return scratch_.path() / name; }
  // as another job does
  void take_over(const fs::path& folder) const {
    std::ofstream(folder / "lock") << R"({"host":"x","place":"x","pid":1,"started":1,"since":1})";
  }
  test::TempFolder scratch_;
};

std::map<std::string, std::string> contents(const fs::path& folder) {
  std::map<std::string, std::string> all;
  for (const auto& entry : fs::directory_iterator(folder))
    all[entry.path().filename()] = base::read_text(entry.path());
  return all;
}

template <class Condition>
bool comes_true(const Condition& condition) {
  for (const auto end = std::chrono::steady_clock::now() + 60s; std::chrono::steady_clock::now() < end;
       std::this_thread::sleep_for(5ms)) {
    if (condition()) return true;
  }
  return false;
}

TEST_F(RecorderTest, ALongStepIsNoSilence) {
  Recorder recorder(hold(20ms), {}, 0);
  recorder.note([](RunStatus& status) { status.step = 7; });
  EXPECT_TRUE(comes_true([&] { return read_status(path("mnist")).step == 7; }));
  const double then = read_status(path("mnist")).updated;
  EXPECT_TRUE(comes_true([&] { return read_status(path("mnist")).updated > then; }))
      << "nobody does anything";
}

TEST_F(RecorderTest, WhatMayWaitIsWrittenBeforeTheNextBeat) {
  Recorder recorder(hold(1h), {}, 0);
  for (int64_t step = 1; step <= 100; ++step)
    recorder.update_soon([&](RunStatus& status) { status.step = step; });
  EXPECT_TRUE(comes_true([&] { return read_status(path("mnist")).step == 100; }));
}

TEST_F(RecorderTest, ManyThreadsSpeakAtOnce) {
  Recorder recorder(hold(1ms), {}, 0);
  std::thread patience([&] { recorder.report_failure("a peer is gone"); });
  std::thread writer([&] { recorder.saved("checkpoints/step-00000003.pt"); });
  for (int64_t step = 1; step <= 50; ++step) {
    recorder.note([&](RunStatus& status) { status.step = step; });
    recorder.add(step, {{"step", step}}, {});
  }
  patience.join();
  writer.join();
  recorder.update([](RunStatus&) {});
  const auto status = read_status(path("mnist"));
  EXPECT_EQ(status.state, RunState::failed);
  EXPECT_EQ(status.step, 50);
  EXPECT_EQ(status.checkpoint, "checkpoints/step-00000003.pt");
}

TEST_F(RecorderTest, ACheckpointThatFailedIsToldUntilOneIsWhole) {
  Recorder recorder(hold(1h), {}, 0);
  recorder.not_saved("no room");
  recorder.update([](RunStatus&) {});
  EXPECT_EQ(read_status(path("mnist")).unsaved, "no room");
  recorder.saved("checkpoints/step-00000003.pt");
  recorder.update([](RunStatus&) {});
  EXPECT_EQ(read_status(path("mnist")).unsaved, "");
}

TEST_F(RecorderTest, WhoWasOvertakenWritesNothing) {
  const auto held = hold();
  Recorder recorder(held, {}, 0);
  recorder.add(1, {{"step", 1}}, {});
  take_over(path("mnist"));
  EXPECT_NO_THROW(recorder.add(2, {{"step", 2}}, {})) << "a log line does not read the lock";
  const auto before = contents(path("mnist"));
  EXPECT_THROW(recorder.update([](RunStatus& status) { status.step = 2; }), FolderLost);
  EXPECT_THROW(recorder.add(3, {{"step", 3}}, {}), FolderLost);
  EXPECT_THROW(recorder.note([](RunStatus&) {}), FolderLost) << "known by now";
  EXPECT_THROW(held->check(), FolderLost);
  recorder.report_failure("too late");
  EXPECT_EQ(contents(path("mnist")), before);
}

TEST_F(RecorderTest, ADeletedFolderIsAnError) {
  Recorder recorder(hold(), {}, 0);
  fs::remove_all(path("mnist"));
  EXPECT_THROW(recorder.update([](RunStatus&) {}), FolderLost);
  EXPECT_FALSE(fs::exists(path("mnist")));
}

TEST_F(RecorderTest, TheHeartFindsOutThatTheFolderIsTaken) {
  Recorder recorder(hold(5ms), {}, 0);
  take_over(path("mnist"));
  EXPECT_TRUE(comes_true([&] {
    try {
      recorder.note([](RunStatus&) {});
      return false;
    } catch (const FolderLost&) {
      return true;
    }
  }));
}

TEST(MetricsFile, WhatIsNoFileIsRefusedAndNotWrittenInto) {
  test::TempFolder scratch;
  const auto pipe = scratch.path() / "pipe", folder = scratch.path() / "folder";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_directory(folder);
  for (const auto& path : {pipe, folder, std::filesystem::path("/dev/null")})
    EXPECT_THROW((MetricsFile(path)), InputError) << path;
}

// Where there are no locks, a job may be stopped between its look at the folder and its line.
TEST(MetricsFile, WhoeverHeldItBeforeWritesIntoNothingOfTheNext) {
  test::TempFolder scratch;
  const auto path = scratch.path() / "metrics.jsonl";
  MetricsFile stopped(path);
  stopped.add({{"step", int64_t{1}}});
  MetricsFile next(path, stopped.offset());
  next.add({{"step", int64_t{2}}});
  stopped.add({{"step", int64_t{3000}}});
  EXPECT_EQ(base::read_text(path), "{\"step\":1}\n{\"step\":2}\n");
}

TEST(ProgressLine, FitsTheTerminal) {
  const Progress progress{.epoch = 1,
                          .epochs = 5,
                          .step = 100,
                          .steps = 235,
                          .loss = 0.31784,
                          .samples_per_second = 7321,
                          .seconds_left = 185};
  EXPECT_EQ(progress_line(progress, 200),
            "[########............] Epoch 2/5  step 100/235  loss 0.3178  7321 samples/s  3m05s left");
  EXPECT_EQ(progress_line(progress, 80),
            "[#####.......] Epoch 2/5  step 100/235  loss 0.3178  7321 samples/s  3m05s left");
  EXPECT_EQ(progress_line(progress, 70), "Epoch 2/5  step 100/235  loss 0.3178  7321 samples/s  3m05s left");
  EXPECT_EQ(progress_line(progress, 60), "[###.....] Epoch 2/5  step 100/235  loss 0.3178  3m05s left");
  EXPECT_EQ(progress_line(progress, 30), "Epoch 2/5  step 100/235");
  for (const int width : {0, 12, 40, 80})
    EXPECT_LE(progress_line(progress, width).size(), static_cast<size_t>(std::max(width - 1, 10)));
}

}  // namespace
}  // namespace lockstep::run_folder
