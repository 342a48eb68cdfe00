#include "lockstep/base/descriptor.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>

namespace lockstep::base {
namespace {

TEST(WriteAll, BringsMoreThanAPipeHoldsAtOnce) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const Descriptor out(ends[0]);
  Descriptor in(ends[1]);
  const std::string sent(1 << 20, 'x');
  std::string come;
  std::thread reader([&] {
    char part[4096];
    for (ssize_t count; (count = ::read(out.number(), part, sizeof part)) > 0;)
      come.append(part, static_cast<size_t>(count));
  });
  EXPECT_TRUE(write_all(in.number(), sent));
  in.close();
  reader.join();
  EXPECT_EQ(come, sent);
}

TEST(WriteAll, OfAFullDiskTheReasonIsLeft) {
  const Descriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  EXPECT_FALSE(write_all(full.number(), "x"));
  EXPECT_EQ(errno, ENOSPC);
  EXPECT_TRUE(write_all(full.number(), ""));
}

}  // namespace
}  // namespace lockstep::base
