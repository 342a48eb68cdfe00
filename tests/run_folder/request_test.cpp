#include "trainer/run_folder/request.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <thread>

#include "lockstep/base/error.h"
#include "temp_folder.h"

namespace lockstep::run_folder {
namespace {
namespace fs = std::filesystem;
using namespace std::chrono_literals;

class Asking : public ::testing::Test {
 protected:
  test::TempFolder scratch_;
  fs::path folder_ = scratch_.path();
};

TEST_F(Asking, ReachesTheAttemptThatIsMeantUntilItIsAnswered) {
  Requests requests(folder_, 3);
  ask(folder_, RunRequest::checkpoint, 3);
  EXPECT_TRUE(requests.asked(RunRequest::checkpoint));
  EXPECT_FALSE(requests.asked(RunRequest::stop));
  requests.answer(RunRequest::checkpoint);
  EXPECT_FALSE(requests.asked(RunRequest::checkpoint));
  EXPECT_FALSE(fs::exists(request_file(folder_, RunRequest::checkpoint)));
}

TEST_F(Asking, AStaleOneStopsNoLaterAttempt) {
  ask(folder_, RunRequest::stop, 2);
  Requests next(folder_, 3);  // forgets what it finds
  EXPECT_FALSE(fs::exists(request_file(folder_, RunRequest::stop)));
  ask(folder_, RunRequest::stop, 2);  // came late, for the attempt before
  EXPECT_FALSE(next.asked(RunRequest::stop));
}

TEST_F(Asking, OneThatComesAsItsAttemptBeginsIsHeard) {
  ask(folder_, RunRequest::stop, 3);
  EXPECT_TRUE(Requests(folder_, 3).asked(RunRequest::stop));
}

TEST_F(Asking, AnEmptyFileMeansTheAttemptThatIsOn) {
  Requests requests(folder_, 7);
  std::ofstream(request_file(folder_, RunRequest::stop)).flush();
  EXPECT_TRUE(requests.asked(RunRequest::stop));
}

TEST_F(Asking, AFolderOfThatNameIsNoRequest) {
  Requests requests(folder_, 1);
  fs::create_directory(request_file(folder_, RunRequest::stop));
  EXPECT_FALSE(requests.asked(RunRequest::stop));
}

TEST_F(Asking, AFolderOfThatNameIsInTheWay) {
  fs::create_directory(request_file(folder_, RunRequest::checkpoint));
  EXPECT_THROW(ask(folder_, RunRequest::checkpoint, 1), InputError);
}

TEST_F(Asking, APipeOfThatNameIsNotWaitedFor) {
  Requests requests(folder_, 1);
  ASSERT_EQ(::mkfifo(request_file(folder_, RunRequest::stop).c_str(), 0600), 0);
  EXPECT_FALSE(requests.asked(RunRequest::stop));
}

RunFolder made(const fs::path& path) {
  fs::create_directory(path);
  return {path, *RunLock::take(path)};
}

TEST_F(Asking, GoesAlongToTheSuccessorOfARemovedFolder) {
  const auto first = folder_ / "run", next = folder_ / "run-2";
  const auto held = std::make_shared<HeldFolder>(made(first), [&](const fs::path&) { return made(next); });
  Requests requests(held, 1);
  fs::remove_all(first);
  testing::internal::CaptureStderr();
  EXPECT_EQ(held->path(), next);
  testing::internal::GetCapturedStderr();
  ask(next, RunRequest::checkpoint, 1);
  EXPECT_TRUE(requests.asked(RunRequest::checkpoint));
  requests.answer(RunRequest::checkpoint);
  EXPECT_FALSE(fs::exists(request_file(next, RunRequest::checkpoint)));
}

TEST_F(Asking, WhoWasOvertakenAnswersNothing) {
  const auto path = folder_ / "run";
  const auto held = std::make_shared<HeldFolder>(made(path), [&](const fs::path&) { return made(path); });
  Requests requests(held, 1);
  std::ofstream(path / "lock") << R"({"epoch":2,"host":"x","place":"x","pid":1,"started":1,"since":1})";
  ask(path, RunRequest::stop, 1);
  EXPECT_FALSE(requests.asked(RunRequest::stop));
  requests.answer(RunRequest::stop);
  EXPECT_TRUE(fs::exists(request_file(path, RunRequest::stop))) << "the other job's";
}

TEST_F(Asking, LooksOnceASecond) {
  Requests requests(folder_, 1);
  EXPECT_FALSE(requests.asked(RunRequest::stop));
  ask(folder_, RunRequest::stop, 1);
  EXPECT_FALSE(requests.asked(RunRequest::stop)) << "looked at a moment ago";
  std::this_thread::sleep_for(1100ms);
  EXPECT_TRUE(requests.asked(RunRequest::stop));
}

TEST_F(Asking, AFolderWithoutASuccessorIsNoErrorOfTheTrainer) {
  const auto first = folder_ / "run";
  const auto held = std::make_shared<HeldFolder>(made(first), [](const fs::path& removed) -> RunFolder {
    throw Error("no room", removed.string(), "");
  });
  Requests requests(held, 1);
  fs::remove_all(first);
  EXPECT_FALSE(requests.asked(RunRequest::stop));
  EXPECT_NO_THROW(requests.answer(RunRequest::stop));
}

}  // namespace
}  // namespace lockstep::run_folder
