#include "lockstep/run_folder/request.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "scratch.h"

namespace lockstep::train {
namespace {
namespace fs = std::filesystem;
using namespace std::chrono_literals;

class Asking : public ::testing::Test {
 protected:
  test::Scratch scratch_;
  fs::path folder_ = scratch_.path();
};

TEST_F(Asking, ReachesTheAttemptThatIsMeantUntilItIsAnswered) {
  run_folder::Requests requests(folder_, 3);
  run_folder::ask(folder_, run_folder::Request::checkpoint, 3);
  EXPECT_TRUE(requests.asked(run_folder::Request::checkpoint));
  EXPECT_FALSE(requests.asked(run_folder::Request::stop));
  requests.answer(run_folder::Request::checkpoint);
  EXPECT_FALSE(requests.asked(run_folder::Request::checkpoint));
  EXPECT_FALSE(fs::exists(run_folder::request_file(folder_, run_folder::Request::checkpoint)));
}

TEST_F(Asking, AStaleOneStopsNoLaterAttempt) {
  run_folder::ask(folder_, run_folder::Request::stop, 2);
  run_folder::Requests next(folder_, 3);  // forgets what it finds
  EXPECT_FALSE(fs::exists(run_folder::request_file(folder_, run_folder::Request::stop)));
  run_folder::ask(folder_, run_folder::Request::stop, 2);  // came late, for the attempt before
  EXPECT_FALSE(next.asked(run_folder::Request::stop));
}

TEST_F(Asking, AnEmptyFileMeansTheAttemptThatIsOn) {
  run_folder::Requests requests(folder_, 7);
  std::ofstream(run_folder::request_file(folder_, run_folder::Request::stop)).flush();
  EXPECT_TRUE(requests.asked(run_folder::Request::stop));
}

TEST_F(Asking, AFolderOfThatNameIsNoRequest) {
  run_folder::Requests requests(folder_, 1);
  fs::create_directory(run_folder::request_file(folder_, run_folder::Request::stop));
  EXPECT_FALSE(requests.asked(run_folder::Request::stop));
}

TEST_F(Asking, LooksOnceASecond) {
  run_folder::Requests requests(folder_, 1);
  EXPECT_FALSE(requests.asked(run_folder::Request::stop));
  run_folder::ask(folder_, run_folder::Request::stop, 1);
  EXPECT_FALSE(requests.asked(run_folder::Request::stop)) << "looked at a moment ago";
  std::this_thread::sleep_for(1100ms);
  EXPECT_TRUE(requests.asked(run_folder::Request::stop));
}

}  // namespace
}  // namespace lockstep::train
