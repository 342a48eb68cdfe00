#include "trainer/run_folder/folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "lockstep/base/files/file.h"
#include "temp_folder.h"

namespace {
const char* host_name = "here";
}  // namespace

// Stands before libc's own: another host.
extern "C" int gethostname(char* name, size_t size) noexcept {
  std::strncpy(name, host_name, size);
  return 0;
}

namespace lockstep::run_folder {
namespace {

class RunLockTest : public ::testing::Test {
 protected:
  ~RunLockTest() override { host_name = "here"; }
  const std::filesystem::path& folder() const { return scratch_.path(); }
  std::filesystem::path file() const { return folder() / "lock"; }
  // in place, as a job on another node would
  void change_record(const std::string& key, const nlohmann::json& value) const {
    auto json = nlohmann::json::parse(base::read_text(file()));
    json[key] = value;
    std::ofstream(file()) << json.dump();
  }
  void was_renewed(double seconds_ago) const {
    const auto when = static_cast<long>((unix_now() - seconds_ago) * 1e3);
    const timespec moment{when / 1000, when % 1000 * 1'000'000};
    const timespec times[] = {moment, moment};
    ASSERT_EQ(::utimensat(AT_FDCWD, file().c_str(), times, 0), 0);
  }
  test::TempFolder scratch_;
};

// A process that takes the folder, says whether it got it, and holds it until it is killed.
class Taker {
 public:
  explicit Taker(const std::filesystem::path& folder) {
    EXPECT_EQ(::pipe(pipe_), 0);
    child_ = ::fork();
    if (child_ != 0) return;
    const auto lock = RunLock::take(folder);
    const char answer = lock ? 'y' : 'n';
    if (::write(pipe_[1], &answer, 1) != 1) ::_exit(1);
    for (;;) ::pause();
  }
  ~Taker() { end(); }
  Taker(Taker&&) = delete;
  bool got_it() const {
    char answer = 0;
    return ::read(pipe_[0], &answer, 1) == 1 && answer == 'y';
  }
  void end() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    ::close(pipe_[0]);
    ::close(pipe_[1]);
    child_ = 0;
  }

 private:
  int pipe_[2] = {-1, -1};
  pid_t child_ = 0;
};

TEST_F(RunLockTest, IsHeldAsLongAsTheObjectLives) {
  for (int i = 0; i < 2; ++i) {
    const auto lock = RunLock::take(folder());
    ASSERT_TRUE(lock);
    EXPECT_EQ(lock->hold(), Hold::ours);
    EXPECT_FALSE(RunLock::take(folder()));
    EXPECT_TRUE(in_use(folder()));
  }
  EXPECT_FALSE(in_use(folder()));
}

TEST_F(RunLockTest, ALivingHolderKeepsItAndADeadOneDoesNot) {
  Taker holder(folder());
  ASSERT_TRUE(holder.got_it());
  EXPECT_TRUE(in_use(folder()));
  EXPECT_FALSE(RunLock::take(folder()));
  holder.end();
  EXPECT_FALSE(in_use(folder()));
  EXPECT_TRUE(RunLock::take(folder()));
}

TEST_F(RunLockTest, AnotherProcessOfTheSameNumberIsNotTheHolder) {
  const auto lock = RunLock::take(folder());
  change_record("started", 1);
  EXPECT_FALSE(in_use(folder()));
}

TEST_F(RunLockTest, AHolderElsewhereLivesAsLongAsItRenewsTheLock) {
  const auto lock = RunLock::take(folder());
  host_name = "elsewhere";
  EXPECT_TRUE(in_use(folder()));
  {
    const std::jthread heart([&](const std::stop_token& over) {
      for (; !over.stop_requested(); std::this_thread::sleep_for(std::chrono::milliseconds(50)))
        lock->renew();
    });
    EXPECT_FALSE(RunLock::take(folder()));
  }
  was_renewed(59.5);  // it died, and its job began again on another node
  EXPECT_TRUE(in_use(folder()));
  EXPECT_TRUE(RunLock::take(folder()));
  EXPECT_NE(lock->hold(), Hold::ours);
}

TEST_F(RunLockTest, IsFreeOnceAHolderElsewhereHasDeletedIt) {
  const auto lock = RunLock::take(folder());
  change_record("host", "elsewhere");
  const std::jthread end_of_run([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    std::filesystem::remove(file());
  });
  EXPECT_TRUE(RunLock::take(folder()));
}

TEST_F(RunLockTest, WhoLostItLeavesTheRecordAlone) {
  {
    const auto lock = RunLock::take(folder());
    change_record("host", "elsewhere");
    EXPECT_EQ(lock->hold(), Hold::taken);
  }
  EXPECT_TRUE(std::filesystem::exists(file()));
  const auto inside = folder() / "run";
  std::filesystem::create_directory(inside);
  const auto lock = RunLock::take(inside);
  std::filesystem::remove_all(inside);
  EXPECT_EQ(lock->hold(), Hold::gone);
}

TEST_F(RunLockTest, WhatAnOlderVersionLeftIsFree) {
  std::ofstream(file()) << R"({"epoch":3,"host":"x","place":"x","pid":0,"started":0,"since":1})";
  EXPECT_FALSE(in_use(folder()));
  EXPECT_TRUE(RunLock::take(folder()));
}

TEST_F(RunLockTest, OneOfManyAtOnceTakesAStaleLock) {
  std::ofstream(file()) << "";
  std::vector<std::unique_ptr<Taker>> takers;
  for (int i = 0; i < 8; ++i) takers.push_back(std::make_unique<Taker>(folder()));
  int winners = 0;
  for (const auto& taker : takers) winners += taker->got_it();
  EXPECT_EQ(winners, 1);
}

}  // namespace
}  // namespace lockstep::run_folder
