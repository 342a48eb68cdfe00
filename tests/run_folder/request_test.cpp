#include "trainer/run_folder/status.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

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
