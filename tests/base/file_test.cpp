#include "lockstep/base/files/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/paths.h"
#include "refusal.h"
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
    const auto error = test::error_from([&] { base::RegularFile(path.string(), "the thing", "do it well"); });
    EXPECT_EQ(error.where(), path.string());
    EXPECT_FALSE(error.hint().empty());
    return error.what();
  }
  test::TempFolder temp_;
  fs::path folder_ = temp_.path();
};

TEST_F(File, WhatIsNoFileIsRefusedAndNotWaitedFor) {
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  fs::create_symlink(folder_ / "pipe", folder_ / "link");
  EXPECT_EQ(refusal(folder_ / "pipe"), "the thing is a pipe, not a regular file");
  EXPECT_EQ(refusal(folder_ / "link"), "the thing is a pipe, not a regular file");
  EXPECT_EQ(refusal("/dev/zero"), "the thing is a device, not a regular file");
  EXPECT_EQ(refusal(folder_), "the thing is a folder, not a regular file");
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
  std::ofstream(folder_ / "empty") << "";
  EXPECT_EQ(base::read_small_file(folder_ / "text", 5, "the thing"), "12345");
  EXPECT_THROW(base::read_small_file(folder_ / "text", 4, "the thing"), InputError);
  EXPECT_EQ(base::read_text(folder_ / "empty"), "");
  EXPECT_FALSE(base::read_text("/proc/self/status").empty());  // a file that says it has no bytes
}

class NearestFile : public ::testing::Test {
 protected:
  std::string near(const std::string& path) const {
    const auto found = base::nearest_file((folder_ / path).string());
    return found.empty() ? "" : fs::path(found).lexically_relative(folder_).string();
  }
  test::TempFolder temp_;
  fs::path folder_ = temp_.path();
};

TEST_F(NearestFile, IsASlipAway) {
  fs::create_directories(folder_ / "runs/mnist");
  temp_.write("a.yaml", "");
  temp_.write("runs/table.csv", "");
  EXPECT_EQ(near("runs/minst"), "runs/mnist");
  EXPECT_EQ(near("run/mnist"), "runs/mnist");
  EXPECT_EQ(near("runs/tabel.csv"), "runs/table.csv");
  EXPECT_EQ(near("runs/table"), "runs/table.csv");
  EXPECT_EQ(near("a.yaml"), "");  // it exists
  EXPECT_EQ(near("nowhere/else/x.yaml"), "");
  EXPECT_EQ(base::did_you_mean_file((folder_ / "runs/minst").string()),
            "did you mean " + (folder_ / "runs/mnist").string() + "? Otherwise, ");
}

TEST_F(NearestFile, OfAnythingAtAllIsNoError) {
  for (const std::string& path : {std::string(), std::string("/"), std::string("."), std::string("a\0b", 3),
                                  std::string(100'000, 'x'), std::string("a/") + std::string(300, 'b')})
    EXPECT_EQ(base::nearest_file(path), "");
  temp_.write("file", "");
  EXPECT_EQ(near("file/under.txt"), "");
}

}  // namespace
}  // namespace lockstep

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

struct FileMaps : testing::Test {
  const size_t page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  test::TempFolder folder;
  std::string path = folder.write("numbers", std::string(4 * page, 'x'));

  FileMap map() const {
    const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC));
    return {file.number(), 0, 4 * page, PROT_READ, MAP_SHARED, path};
  }
};

TEST_F(FileMaps, EndTheProcessIfTheFileBecomesShorter) {
  EXPECT_EXIT(
      {
        const auto whole = map();
        std::filesystem::resize_file(path, page);
        volatile auto count = std::count(whole.data(), whole.data() + whole.size(), 'x');
        std::ignore = count;
      },
      testing::ExitedWithCode(kFailed), "SIGBUS");
}

TEST_F(FileMaps, RefuseAFileThatWasCutWithinAPage) {
  const auto whole = map();
  EXPECT_NO_THROW(whole.refuse_cut());
  std::filesystem::resize_file(path, 4 * page - 10);
  EXPECT_THROW(whole.refuse_cut(), Error);
}

TEST_F(FileMaps, LeaveASignalFromAnotherProcessToTheSystem) {
  const auto whole = map();
  EXPECT_EXIT(std::raise(SIGBUS), testing::KilledBySignal(SIGBUS), "");
}

}  // namespace
}  // namespace lockstep::base

namespace lockstep {
namespace {
namespace fs = std::filesystem;

class Paths : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder_ / "work");
    fs::create_directories(folder_ / "home/data");
    before_ = fs::current_path();
    fs::current_path(folder_ / "work");
    setenv("LOCKSTEP_HOME", (folder_ / "home").c_str(), 1);
  }
  void TearDown() override {
    unsetenv("LOCKSTEP_HOME");
    fs::current_path(before_);
  }
  test::TempFolder temp_;
  fs::path folder_ = temp_.path(), before_;
};

TEST_F(Paths, TheWorkingDirectoryComesFirstAndHomeSecond) {
  std::ofstream("here.yaml") << "x";
  std::ofstream(folder_ / "home/here.yaml") << "y";
  EXPECT_EQ(base::find_path("here.yaml"), "here.yaml");
  EXPECT_EQ(base::find_path("data"), (folder_ / "home/data").string());
}

TEST_F(Paths, WhatIsNowhereStaysAsItWasWritten) {
  EXPECT_EQ(base::find_path("nowhere.yaml"), "nowhere.yaml");
  EXPECT_EQ(base::find_path("/nowhere/data"), "/nowhere/data");
  EXPECT_EQ(base::find_path(""), "");
}

TEST_F(Paths, WithoutTheVariableTheBuildFindsItsSourceTree) {
  unsetenv("LOCKSTEP_HOME");
  EXPECT_TRUE(fs::exists(fs::path(base::home_folder()) / "data/pima")) << base::home_folder();
  setenv("LOCKSTEP_HOME", "", 1);
  EXPECT_TRUE(fs::exists(fs::path(base::home_folder()) / "data/pima")) << base::home_folder();
}

}  // namespace
}  // namespace lockstep
