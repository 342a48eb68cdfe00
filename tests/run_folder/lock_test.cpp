#include "trainer/run_folder/lock.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "temp_folder.h"

namespace {
bool flock_works = true;
const char* host_name = "here";
}  // namespace

// These stand before libc's own: a file system without flock, and another host.
extern "C" int flock(int file, int operation) noexcept {
  if (flock_works) return static_cast<int>(::syscall(SYS_flock, file, operation));
  errno = ENOLCK;
  return -1;
}
extern "C" int gethostname(char* name, size_t size) noexcept {
  std::strncpy(name, host_name, size);
  return 0;
}

namespace lockstep::run_folder {
namespace {

double seconds_ago(double seconds) {
  using namespace std::chrono;
  return duration<double>(system_clock::now().time_since_epoch()).count() - seconds;
}

class RunLockTest : public ::testing::Test {
 protected:
  ~RunLockTest() override {
    flock_works = true;
    host_name = "here";
  }
  const std::filesystem::path& folder() const { return scratch_.path(); }
  nlohmann::json record() const { return nlohmann::json::parse(base::read_text(folder() / "lock")); }
  // in place, as a job on another node would
  void change_record(const std::string& key, const nlohmann::json& value) const {
    auto json = record();
    json[key] = value;
    std::ofstream(folder() / "lock") << json.dump();
  }
  void was_heard(double seconds) const {
    base::replace_file(folder() / "status.json",
                       nlohmann::json{{"state", "running"}, {"updated", seconds_ago(seconds)}}.dump());
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
  Taker(const Taker&) = delete;
  Taker& operator=(const Taker&) = delete;
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

TEST_F(RunLockTest, EachWhoTakesItRaisesTheEpoch) {
  for (int epoch = 1; epoch <= 3; ++epoch) {
    const auto lock = RunLock::take(folder());
    ASSERT_TRUE(lock);
    EXPECT_EQ(lock->hold(), Hold::ours);
    EXPECT_EQ(record()["epoch"], epoch);
    EXPECT_FALSE(RunLock::take(folder()));
    EXPECT_TRUE(in_use(folder()));
  }
  EXPECT_FALSE(in_use(folder()));
}

TEST_F(RunLockTest, WhoLostItSeesThatAndLeavesTheRecordAlone) {
  {
    const auto lock = RunLock::take(folder());
    change_record("epoch", 2);
    EXPECT_EQ(lock->hold(), Hold::taken);
  }
  EXPECT_EQ(record()["epoch"], 2);
  EXPECT_EQ(record()["pid"], ::getpid());
}

TEST_F(RunLockTest, WhoWritesToARemovedFolderSeesThat) {
  const auto inside = folder() / "run";
  std::filesystem::create_directory(inside);
  const auto lock = RunLock::take(inside);
  std::filesystem::remove_all(inside);
  EXPECT_EQ(lock->hold(), Hold::gone);
}

TEST_F(RunLockTest, WithoutFlockALivingHolderKeepsItAndADeadOneDoesNot) {
  flock_works = false;
  Taker holder(folder());
  ASSERT_TRUE(holder.got_it());
  EXPECT_TRUE(in_use(folder()));
  EXPECT_FALSE(RunLock::take(folder()));
  holder.end();
  EXPECT_FALSE(in_use(folder()));
  EXPECT_TRUE(RunLock::take(folder()));
}

TEST_F(RunLockTest, WithoutFlockAnotherProcessOfTheSameNumberIsNotTheHolder) {
  flock_works = false;
  const auto lock = RunLock::take(folder());
  EXPECT_TRUE(in_use(folder()));
  change_record("started", 1);
  EXPECT_FALSE(in_use(folder()));
}

TEST_F(RunLockTest, WithoutFlockAFolderThatWasLeftIsFreeEverywhereAtOnce) {
  flock_works = false;
  ASSERT_TRUE(RunLock::take(folder()));
  was_heard(0);
  host_name = "elsewhere";
  EXPECT_TRUE(RunLock::take(folder()));
}

TEST_F(RunLockTest, WithoutFlockAHolderElsewhereLivesAsLongAsItIsHeard) {
  flock_works = false;
  const auto lock = RunLock::take(folder());
  host_name = "elsewhere";
  EXPECT_TRUE(in_use(folder())) << "it has only just begun";
  change_record("since", seconds_ago(1000));
  EXPECT_FALSE(in_use(folder())) << "never heard";
  was_heard(1);
  EXPECT_TRUE(in_use(folder()));
  {
    const std::jthread heart([&](const std::stop_token& over) {
      for (; !over.stop_requested(); std::this_thread::sleep_for(std::chrono::milliseconds(50))) was_heard(0);
    });
    EXPECT_FALSE(RunLock::take(folder()));
  }
  was_heard(59.5);  // it died, and its job began again on another node
  EXPECT_TRUE(in_use(folder()));
  const auto other = RunLock::take(folder());
  ASSERT_TRUE(other);
  EXPECT_EQ(lock->hold(), Hold::taken);
}

TEST_F(RunLockTest, WithoutFlockOneOfManyAtOnceGetsIt) {
  flock_works = false;
  std::vector<std::unique_ptr<Taker>> takers;
  for (int i = 0; i < 8; ++i) takers.push_back(std::make_unique<Taker>(folder()));
  int winners = 0;
  for (const auto& taker : takers) winners += taker->got_it();
  EXPECT_EQ(winners, 1);
}

}  // namespace
}  // namespace lockstep::run_folder
