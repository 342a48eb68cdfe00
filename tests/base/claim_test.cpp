#include "lockstep/base/files/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "temp_folder.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class Claims : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  base::Descriptor make(const std::string& name) const {
    return base::Descriptor(::open(path(name).c_str(), O_CREAT | O_RDWR, 0600));
  }

  test::TempFolder temp_;
  std::string folder_ = temp_.path().string();
};

TEST_F(Claims, ASweepTakesWhatNobodyHoldsAndNothingElse) {
  const auto held = make(base::claimed_name("held"));
  ASSERT_TRUE(base::claim(held));
  make(base::claimed_name("left"));
  make("lockstep-notes.txt");
  make("other.shared");
  fs::create_directory(path(base::claimed_name("folder")));
  fs::create_symlink(path("lockstep-notes.txt"), path(base::claimed_name("link")));
  base::sweep_unclaimed(folder_);
  EXPECT_TRUE(fs::exists(path(base::claimed_name("held"))));
  EXPECT_FALSE(fs::exists(path(base::claimed_name("left"))));
  for (const char* name : {"lockstep-notes.txt", "other.shared"}) EXPECT_TRUE(fs::exists(path(name))) << name;
  EXPECT_TRUE(fs::exists(path(base::claimed_name("folder"))));
  EXPECT_TRUE(fs::is_symlink(path(base::claimed_name("link"))));
}

TEST_F(Claims, WhatItsMakerLeftIsSwept) {
  { ASSERT_TRUE(base::claim(make(base::claimed_name("mine")))); }
  base::sweep_unclaimed(folder_);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(Claims, WhatWasSweptBeforeItWasClaimedIsNoClaim) {
  const auto late = make(base::claimed_name("late"));
  base::sweep_unclaimed(folder_);
  EXPECT_FALSE(base::claim(late));
  const auto sweeper = make(base::claimed_name("next"));
  ::flock(sweeper.number(), LOCK_EX);
  EXPECT_FALSE(base::claim(make(base::claimed_name("next"))));
}

TEST_F(Claims, ASweepNeverTakesWhatIsClaimedMeanwhile) {
  constexpr int kMakers = 4, kFiles = 5000;  // half of the makers take the same name again and again
  std::atomic<int> at_work = kMakers, claimed = 0, swept = 0;
  std::vector<std::thread> threads;
  for (int maker = 0; maker < kMakers; ++maker)
    threads.emplace_back([&, maker] {
      for (int i = 0; i < kFiles; ++i) {
        const auto name = base::claimed_name(std::to_string(maker) + "-" + std::to_string(maker % 2 ? i : 0));
        const auto file = make(name);
        if (!base::claim(file)) continue;
        ++claimed;
        std::this_thread::yield();
        if (!fs::exists(path(name))) ++swept;
        ::unlink(path(name).c_str());
      }
      --at_work;
    });
  threads.emplace_back([&] {
    while (at_work > 0) base::sweep_unclaimed(folder_);
  });
  while (at_work > 0) base::sweep_unclaimed(folder_);
  for (auto& thread : threads) thread.join();
  EXPECT_GT(claimed, 0);
  EXPECT_EQ(swept, 0);
}

TEST(SharedMemory, WhatAKillLeftIsSweptByTheNext) {
  int channel[2];
  ASSERT_EQ(::pipe(channel), 0);
  const int child = ::fork();
  if (child == 0) {
    const auto memory = base::SharedMemory::create(4096);
    std::ignore = ::write(channel[1], memory.name().c_str(), memory.name().size());
    ::raise(SIGKILL);
  }
  std::string name(256, '\0');
  name.resize(static_cast<size_t>(::read(channel[0], name.data(), name.size())));
  ::waitpid(child, nullptr, 0);
  ASSERT_FALSE(name.empty());  // other processes of this machine may sweep it before the next line
  const auto first = base::SharedMemory::create(4096);
  const auto second = base::SharedMemory::create(4096);
  EXPECT_FALSE(base::SharedMemory::open(name).has_value());
  EXPECT_TRUE(base::SharedMemory::open(first.name()).has_value()) << "one that is held is left alone";
}

}  // namespace
}  // namespace lockstep
