#include "lockstep/comm/meet/meeting_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "lockstep/base/error.h"
#include "temp_folder.h"

namespace lockstep::comm {
namespace {

namespace fs = std::filesystem;

class MeetingFileTest : public ::testing::Test {
 protected:
  void make_folder() {
    fs::create_directory(path_.parent_path());
    ::chmod(path_.parent_path().c_str(), 0700);
  }
  void plant(const std::string& text) {
    make_folder();
    std::ofstream(path_) << text;
  }
  static mode_t mode_of(const fs::path& path) {
    struct stat facts {};
    ::lstat(path.c_str(), &facts);
    return facts.st_mode & 07777;
  }

  test::TempFolder folder_;
  fs::path root_ = folder_.path(), path_ = root_ / "lockstep-0" / "slurm-0-0-7";
};

TEST_F(MeetingFileTest, TellsWhereRankZeroIsAndGoesWithIt) {
  EXPECT_FALSE(read_meeting_file(path_));
  {
    const MeetingFile file(path_, {"10.0.0.1", 4711, "word"});
    const auto place = read_meeting_file(path_);
    ASSERT_TRUE(place);
    EXPECT_EQ(place->host, "10.0.0.1");
    EXPECT_EQ(place->port, 4711);
    EXPECT_EQ(place->word, "word");
    EXPECT_EQ(mode_of(path_), 0600U);
    EXPECT_EQ(mode_of(path_.parent_path()), 0700U);
  }
  EXPECT_TRUE(fs::is_empty(root_));
}

TEST_F(MeetingFileTest, AStartThatFailedDoesNotSpoilTheNext) {
  plant("10.0.0.1 1 old .\n");
  const MeetingFile file(path_, {"10.0.0.1", 2, "new"});
  EXPECT_EQ(read_meeting_file(path_)->word, "new");
}

TEST_F(MeetingFileTest, AStartThatGivesUpLateLeavesTheNextOnesFile) {
  auto first = std::make_unique<MeetingFile>(path_, MeetingPlace{"10.0.0.1", 1, "old"});
  const MeetingFile next(path_, {"10.0.0.1", 2, "new"});
  first.reset();
  const auto place = read_meeting_file(path_);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->word, "new");
}

TEST_F(MeetingFileTest, HalfAFileIsNone) {
  for (const char* text :
       {"", "10.0.0.1", "10.0.0.1 80", "10.0.0.1 80 wor", "10.0.0.1 99999 word .", "\xff\xff"}) {
    plant(text);
    EXPECT_FALSE(read_meeting_file(path_)) << text;
  }
}

TEST_F(MeetingFileTest, WhatIsNoFileOfOursIsNotRead) {
  make_folder();
  std::ofstream(root_ / "elsewhere") << "10.0.0.1 80 word .\n";
  fs::create_symlink(root_ / "elsewhere", path_);
  EXPECT_FALSE(read_meeting_file(path_)) << "a link";
  fs::remove(path_);
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_FALSE(read_meeting_file(path_)) << "a pipe, which must not be waited for";
}

TEST_F(MeetingFileTest, AFolderThatOthersMayUseIsRefused) {
  make_folder();
  ::chmod(path_.parent_path().c_str(), 0755);
  EXPECT_THROW(read_meeting_file(path_), InputError);
  EXPECT_THROW(MeetingFile(path_, {"a", 1, "w"}), InputError);
}

TEST_F(MeetingFileTest, AFolderOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make one";
  make_folder();
  ASSERT_EQ(::chown(path_.parent_path().c_str(), 12345, 12345), 0);
  try {
    const MeetingFile file(path_, {"a", 1, "w"});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("belongs to another user"), std::string::npos);
    EXPECT_NE(error.hint().find("LOCKSTEP_RENDEZVOUS_DIR"), std::string::npos);
  }
}

TEST_F(MeetingFileTest, ALinkInPlaceOfTheFolderIsRefused) {
  fs::create_directory(root_ / "theirs");
  fs::create_directory_symlink(root_ / "theirs", path_.parent_path());
  EXPECT_THROW(MeetingFile(path_, {"a", 1, "w"}), InputError);
  EXPECT_TRUE(fs::is_empty(root_ / "theirs"));
}

TEST_F(MeetingFileTest, WhatKilledStartsLeftIsSwept) {
  plant("old");
  const auto old = path_.parent_path() / "slurm-0-0-6", fresh = path_.parent_path() / "slurm-0-0-8";
  std::ofstream(old) << "x";
  std::ofstream(fresh) << "x";
  fs::last_write_time(old, fs::file_time_type::clock::now() - std::chrono::hours(48));
  { const MeetingFile file(path_, {"a", 1, "w"}); }
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(fresh)) << "another job may be about to meet there";
}

}  // namespace
}  // namespace lockstep::comm
