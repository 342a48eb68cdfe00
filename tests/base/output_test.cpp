// Where a person's output goes: into files, behind links, through pipes and devices.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "temp_folder.h"

namespace {
std::vector<mode_t> synced;  // the kinds of files
}  // namespace

// Stands before libc's own.
extern "C" int fsync(int file) {
  struct stat facts {};
  ::fstat(file, &facts);
  synced.push_back(facts.st_mode & S_IFMT);
  return 0;
}

namespace lockstep {
namespace {
namespace fs = std::filesystem;

void write(const std::string& path, const std::string& text) {
  base::write_output(path, text, "name another file");
}

TEST(Output, FollowsLinksAndKeepsThem) {
  const test::TempFolder folder;
  folder.write("real", "old");
  ::chmod((folder / "real").c_str(), 0600);
  fs::create_symlink("real", folder / "link");
  fs::create_symlink("link", folder / "chain");
  fs::create_symlink("later", folder / "dangling");
  write(folder / "chain", "new");
  write(folder / "dangling", "made");
  EXPECT_EQ(base::read_text(folder / "real"), "new");
  EXPECT_EQ(base::read_text(folder / "later"), "made");
  for (const auto* link : {"link", "chain", "dangling"}) EXPECT_TRUE(fs::is_symlink(folder / link)) << link;
  EXPECT_EQ(fs::status(folder / "real").permissions(), fs::perms::owner_read | fs::perms::owner_write);
}

TEST(Output, FollowsNoStrangersLink) {
  constexpr uid_t kStranger = 54321;
  const test::TempFolder folder;
  folder.write("mine", "old");
  for (const auto* target : {"mine", "later", "/dev/null"}) {
    fs::remove(folder / "link");
    fs::create_symlink(target, folder / "link");
    if (::lchown((folder / "link").c_str(), kStranger, -1) != 0) GTEST_SKIP() << "only root gives links away";
    EXPECT_THROW(write(folder / "link", "new"), InputError) << target;
    EXPECT_THROW(base::check_output(folder / "link", ""), InputError) << target;
  }
  EXPECT_EQ(base::read_text(folder / "mine"), "old");
  EXPECT_FALSE(fs::exists(folder / "later"));
}

TEST(Output, WritesThroughWhatIsNoFile) {
  const test::TempFolder folder;
  write("/dev/null", "gone");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  EXPECT_THROW(write("/dev/full", "lost"), Error);
  EXPECT_TRUE(fs::is_character_file("/dev/full"));
  EXPECT_THROW(write(folder.path(), "x"), Error);
  const auto pipe = folder / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW(write(pipe, "x"), Error) << "nobody reads";
  const int reader = ::open(pipe.c_str(), O_RDONLY | O_NONBLOCK);
  write(pipe, "heard");
  char text[16] = {};
  EXPECT_EQ(::read(reader, text, sizeof text), 5);
  EXPECT_STREQ(text, "heard");
  EXPECT_TRUE(fs::is_fifo(pipe));
  ::close(reader);
}

TEST(WriteWhole, AKilledWritersFileIsRemovedAndALivingOnesIsNot) {
  const test::TempFolder folder;
  const auto dead = folder.write(".out.json.12345.partial", "half");
  const auto living = folder.write(".out.json.12346.partial", "half");
  fs::last_write_time(dead, fs::file_time_type::clock::now() - std::chrono::minutes(20));
  base::remove_stale_partials(folder / "out.json");
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(living));
}

// Else a power cut could leave an empty file under the name.
TEST(WriteWhole, IsOnTheDiskBeforeItHasItsNameAndThenTheNameIs) {
  const test::TempFolder folder;
  synced.clear();
  const std::vector<mode_t> file = {S_IFREG}, both = {S_IFREG, S_IFDIR};
  base::write_whole(
      folder / "file", [](const base::ByteSink& sink) { sink("x", 1); }, [&] { EXPECT_EQ(synced, file); });
  EXPECT_EQ(synced, both);
}

// As in two containers that share a folder: the same number of a process, the same file.
TEST(WriteWhole, OfTwoWritersNeitherTakesTheOthersFile) {
  const test::TempFolder folder;
  base::write_whole(folder / "file", [&](const base::ByteSink& sink) {
    base::replace_file(folder / "file", "inner");
    sink("outer", 5);
  });
  EXPECT_EQ(base::read_text(folder / "file"), "outer");
}

}  // namespace
}  // namespace lockstep
