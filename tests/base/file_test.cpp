#include "lockstep/base/files/file.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "lockstep/base/error.h"
#include "temp_folder.h"

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class File : public ::testing::Test {
 protected:
  void SetUp() override {
    alarm(20);  // a reader that waits for a pipe's writer would wait for ever
  }
  void TearDown() override { alarm(0); }
  std::string refusal(const fs::path& path) {
    try {
      base::RegularFile(path.string(), "the thing", "do it well");
      return "was opened";
    } catch (const InputError& error) {
      EXPECT_EQ(error.where(), path.string());
      EXPECT_FALSE(error.hint().empty());
      return error.what();
    }
  }
  test::TempFolder temp_;
  fs::path folder_ = temp_.path();
};

TEST_F(File, WhatIsNoFileIsRefusedAndNotWaitedFor) {
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  fs::create_symlink(folder_ / "pipe", folder_ / "link");
  EXPECT_EQ(refusal(folder_ / "pipe"), "the thing is a pipe, not a file");
  EXPECT_EQ(refusal(folder_ / "link"), "the thing is a pipe, not a file");
  EXPECT_EQ(refusal("/dev/zero"), "the thing is a device, not a file");
  EXPECT_EQ(refusal(folder_), "the thing is a folder, not a file");
  EXPECT_THROW(base::read_text(folder_ / "pipe"), InputError);
  EXPECT_THROW(base::read_small_file(folder_ / "pipe", 10, "the thing"), InputError);
}

TEST_F(File, WhatCannotBeOpenedSaysWhy) {
  EXPECT_EQ(refusal(folder_ / "none"), "the thing cannot be read: No such file or directory");
  EXPECT_EQ(refusal(folder_ / std::string(300, 'x')), "the thing cannot be read: File name too long");
  EXPECT_THROW(base::RegularFile(std::string("a\0b", 3), "the thing"), InputError);
}

TEST_F(File, IsReadWholeUpToItsLimit) {
  std::ofstream(folder_ / "text") << "12345";
  std::ofstream(folder_ / "empty");
  EXPECT_EQ(base::read_small_file(folder_ / "text", 5, "the thing"), "12345");
  EXPECT_THROW(base::read_small_file(folder_ / "text", 4, "the thing"), InputError);
  EXPECT_EQ(base::read_text(folder_ / "empty"), "");
  EXPECT_FALSE(base::read_text("/proc/self/status").empty());  // a file that says it has no bytes
}

}  // namespace
}  // namespace lockstep
