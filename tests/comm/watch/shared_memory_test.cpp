#include "lockstep/base/files/shared_memory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <tuple>

namespace lockstep {
namespace {

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
