#include "tools/doctor/job/folders.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "temp_folder.h"

namespace lockstep::doctor {
namespace {

using namespace std::chrono_literals;

FolderView node_view(int rank, const std::string& digest = "d") {
  FolderView view;
  view.rank = view.node = rank;
  view.host = "n" + std::to_string(rank);
  view.there = "/scratch/runs";
  view.kind = "nfs";
  view.free = 5LL << 30;
  view.digest = digest;
  return view;
}

FolderAccess well(int rank) {
  return {.rank = rank,
          .host = "n" + std::to_string(rank),
          .seen_after = 0.01,
          .unwritten = {},
          .arrived = true,
          .lock_error = {}};
}

TEST(FolderView, AFolderWithFiles) {
  const test::TempFolder folder;
  std::filesystem::create_directory(folder.path() / "raw");
  folder.write("raw/images", "12345");
  folder.write("labels\n", "1");
  const auto view = view_of(folder.path(), Purpose::to_read, 5s);
  EXPECT_TRUE(view.answered);
  EXPECT_EQ(view.unreadable, "");
  EXPECT_EQ(view.entries, 3);
  EXPECT_GT(view.free, 0);
  EXPECT_FALSE(view.kind.empty());
  const auto same = view_of(folder.path(), Purpose::to_read, 5s);
  EXPECT_EQ(view.digest, same.digest);
  folder.write("raw/images", "123456");
  EXPECT_NE(view_of(folder.path(), Purpose::to_read, 5s).digest, same.digest) << "a file of another size";
}

TEST(FolderView, OneFileIsDataToo) {
  const test::TempFolder folder;
  const auto view = view_of(folder.write("all.csv", "1,2"), Purpose::to_read, 5s);
  EXPECT_EQ(view.unreadable, "");
  EXPECT_EQ(view.entries, 1);
}

TEST(FolderView, WhatIsNotThereIsNotRead) {
  const test::TempFolder folder;
  EXPECT_EQ(view_of(folder / "none", Purpose::to_read, 5s).unreadable, "No such file or directory");
}

TEST(FolderView, ARunFolderMayBeYetToBeMadeAndNothingStaysThere) {
  const test::TempFolder folder;
  const auto view = view_of(folder / "a/b/runs", Purpose::to_write, 5s);
  EXPECT_EQ(view.there, folder.path());
  EXPECT_EQ(view.unwritable, "");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_EQ(view_of(folder.write("file", ""), Purpose::to_write, 5s).unwritable, "Not a directory");
}

TEST(FolderView, WhoAsksForNoPatienceGetsNoAnswer) {
  const test::TempFolder folder;
  EXPECT_FALSE(view_of(folder.path(), Purpose::to_write, 0ms).answered);
  ::usleep(100'000);  // the thread that was left behind is done with the folder
}

TEST(FolderView, SurvivesTheJourney) {
  auto view = node_view(3);
  view.unreadable = "a\nb";
  view.answered = false;
  const auto after = unpack_view(pack(view));
  EXPECT_EQ(after.rank, 3);
  EXPECT_EQ(after.unreadable, "a\nb");
  EXPECT_FALSE(after.answered);
  EXPECT_EQ(after.free, 5LL << 30);
}

TEST(Folders, WellOnAllNodes) {
  EXPECT_EQ(judge_data_folder("/d", {node_view(0), node_view(1)}).at(0).verdict, FindingLevel::ok);
  EXPECT_EQ(judge_run_folder("/r", {node_view(0), node_view(1)}).at(0).verdict, FindingLevel::ok);
  EXPECT_EQ(judge_sharing(node_view(0), {node_view(0), node_view(1)}, {well(1)}).at(0).verdict,
            FindingLevel::ok);
}

TEST(Folders, OtherFilesOnOneNode) {
  const auto findings = judge_data_folder("/d", {node_view(0), node_view(1, "other"), node_view(2)});
  EXPECT_EQ(findings.at(0).verdict, FindingLevel::failure);
  EXPECT_NE(findings[0].says.find("other files on n1 than on n0"), std::string::npos) << findings[0].says;
}

TEST(Folders, SilentUnreadableAndUnwritableNodesAreNamedOnceAReason) {
  auto silent = node_view(1), second = node_view(2), third = node_view(3);
  silent.answered = false;
  second.unwritable = third.unwritable = "Read-only file system";
  const auto findings = judge_run_folder("/r", {node_view(0), silent, second, third});
  ASSERT_EQ(findings.size(), 2U);
  EXPECT_NE(findings[0].says.find("on n1: the file system did not answer"), std::string::npos);
  EXPECT_NE(findings[1].says.find("on n2, n3: Read-only file system"), std::string::npos) << findings[1].says;
}

TEST(Folders, LittleRoomIsAWarning) {
  auto view = node_view(0);
  view.free = 3 << 20;
  const auto findings = judge_run_folder("/r", {view});
  EXPECT_EQ(findings.at(0).verdict, FindingLevel::warning);
  EXPECT_NE(findings[0].says.find("3.0 MiB are free"), std::string::npos) << findings[0].says;
}

TEST(Folders, ANodeThatHasOnlyTheFolderAbove) {
  auto other = node_view(1);
  other.there = "/scratch";
  const auto findings = judge_run_folder("/scratch/runs", {node_view(0), other});
  EXPECT_NE(findings.at(0).says.find("n0 has /scratch/runs, and n1 only /scratch"), std::string::npos)
      << findings[0].says;
}

TEST(Folders, WhatIsNotSeenIsNoSharedFileSystem) {
  auto other = node_view(1);
  other.kind = "tmpfs";
  auto unseen = well(1);
  unseen.seen_after = -1;
  const auto findings = judge_sharing(node_view(0), {node_view(0), other}, {unseen});
  EXPECT_EQ(findings.at(0).verdict, FindingLevel::failure);
  EXPECT_NE(findings[0].says.find("what n0 writes there (nfs) is not seen on n1 (tmpfs)"), std::string::npos)
      << findings[0].says;
}

TEST(Folders, SlowSightLooseLocksAndMissingOnes) {
  auto slow = well(1), loose = well(1), without = well(1), back = well(1);
  slow.seen_after = 3;
  loose.lock_held = false;
  without.lock_error = "Function not implemented";
  back.arrived = false;
  const std::vector<FolderView> views = {node_view(0), node_view(1)};
  EXPECT_EQ(judge_sharing(node_view(0), views, {slow}).at(0).verdict, FindingLevel::warning);
  EXPECT_EQ(judge_sharing(node_view(0), views, {loose}).at(0).verdict, FindingLevel::failure);
  EXPECT_NE(judge_sharing(node_view(0), views, {loose}).at(0).says.find("n1 gets the run's lock while n0"),
            std::string::npos);
  EXPECT_EQ(judge_sharing(node_view(0), views, {without}).at(0).verdict, FindingLevel::warning);
  EXPECT_EQ(judge_sharing(node_view(0), views, {back}).at(0).verdict, FindingLevel::failure);
  const auto after = unpack_shared(pack(without));
  EXPECT_EQ(after.lock_error, without.lock_error);
  EXPECT_DOUBLE_EQ(after.seen_after, 0.01);
}

}  // namespace
}  // namespace lockstep::doctor
