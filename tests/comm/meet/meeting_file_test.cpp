#include "lockstep/comm/meet/meeting_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>

#include "lockstep/base/descriptor.h"
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
    const MeetingFile file(path_, {.host = "10.0.0.1", .port = 4711, .word = "word"});
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
  const MeetingFile file(path_, {.host = "10.0.0.1", .port = 2, .word = "new"});
  EXPECT_EQ(read_meeting_file(path_)->word, "new");
}

TEST_F(MeetingFileTest, AStartThatGivesUpLateLeavesTheNextOnesFile) {
  auto first =
      std::make_unique<MeetingFile>(path_, MeetingPlace{.host = "10.0.0.1", .port = 1, .word = "old"});
  const MeetingFile next(path_, {.host = "10.0.0.1", .port = 2, .word = "new"});
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
  EXPECT_THROW(LocalMeeting{path_}, InputError);
  EXPECT_THROW(find_local_store(path_), InputError);
  EXPECT_THROW(read_meeting_file(path_), InputError);
  EXPECT_THROW(MeetingFile(path_, {.host = "a", .port = 1, .word = "w"}), InputError);
}

TEST_F(MeetingFileTest, AFolderOfAnotherUserIsRefused) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can make one";
  make_folder();
  ASSERT_EQ(::chown(path_.parent_path().c_str(), 12345, 12345), 0);
  try {
    const MeetingFile file(path_, {.host = "a", .port = 1, .word = "w"});
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("belongs to another user"), std::string::npos);
    EXPECT_NE(error.hint().find("LOCKSTEP_RENDEZVOUS_DIR"), std::string::npos);
  }
}

TEST_F(MeetingFileTest, ALinkInPlaceOfTheFolderIsRefused) {
  fs::create_directory(root_ / "theirs");
  fs::create_directory_symlink(root_ / "theirs", path_.parent_path());
  EXPECT_THROW(MeetingFile(path_, {.host = "a", .port = 1, .word = "w"}), InputError);
  EXPECT_TRUE(fs::is_empty(root_ / "theirs"));
}

TEST_F(MeetingFileTest, ALocalStoreIsThisUsersAloneAndOutlivesItsName) {
  EXPECT_FALSE(find_local_store(path_));
  StorePtr found;
  {
    const LocalMeeting meeting(path_);
    meeting.store()->set("a", "1");
    found = find_local_store(path_);
    ASSERT_TRUE(found);
    EXPECT_EQ(mode_of(path_), 0600U);
    EXPECT_EQ(mode_of(path_.parent_path()), 0700U);
    EXPECT_THROW(LocalMeeting{path_}, Error) << "of another job, on the same MASTER_PORT";
    EXPECT_TRUE(find_local_store(path_)->check({"a"})) << "and the first one goes on";
  }
  EXPECT_TRUE(fs::is_empty(root_));
  EXPECT_EQ(found->get_to_str("a"), "1");
}

TEST_F(MeetingFileTest, ALocalStoreThatAKilledStartLeftIsReplaced) {
  {
    const LocalMeeting meeting(path_);
    fs::rename(path_, root_ / "kept");
  }
  make_folder();
  fs::rename(root_ / "kept", path_);
  EXPECT_FALSE(find_local_store(path_)) << "nobody holds it";
  const LocalMeeting next(path_);
  EXPECT_TRUE(find_local_store(path_));
}

TEST_F(MeetingFileTest, AnotherUsersProcessCannotOpenALocalStore) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root acts as another user";
  fs::permissions(root_, fs::perms::all);
  const LocalMeeting meeting(path_);
  ::setfsuid(12345);
  const base::Descriptor file(::open(path_.c_str(), O_RDONLY));
  const int reason = errno;
  ::setfsuid(0);
  EXPECT_FALSE(file);
  EXPECT_EQ(reason, EACCES);
}

}  // namespace
}  // namespace lockstep::comm
