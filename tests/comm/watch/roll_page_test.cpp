#include "lockstep/comm/watch/findings.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <tuple>

namespace lockstep::comm {
namespace {

RollPage fresh_page(int world) {
  return {base::SharedMemory::create(RollPage::bytes_for(world)), world};
}

TEST(RollPage, TheFirstFindingStands) {
  RollPage page = fresh_page(2);
  EXPECT_EQ(page.agreed(), "");
  EXPECT_EQ(page.agree_on("rank 1 died"), "rank 1 died");
  EXPECT_EQ(page.agree_on("rank 0 died"), "rank 1 died");
  EXPECT_EQ(page.agreed(), "rank 1 died");
}

TEST(RollPage, AnotherProcessReadsIt) {
  RollPage page = fresh_page(2);
  const int child = ::fork();
  if (child == 0) {
    auto memory = base::SharedMemory::open(page.name());
    if (!memory) ::_exit(1);
    RollPage theirs(std::move(*memory), 2);
    ++theirs.of(1).begun;
    ::_exit(0);
  }
  int status = 1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(page.of(1).begun, 1u);
  EXPECT_EQ(page.of(0).begun, 0u);
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
}  // namespace lockstep::comm
