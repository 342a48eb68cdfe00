#include "lockstep/launch/process/report.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <new>
#include <sstream>

#include "lockstep/base/error.h"
#include "temp_folder.h"

namespace lockstep::launch {
namespace {

TEST(Report, SaysTheDoctorsCheckOfACode) {
  EXPECT_EQ(report_of(InputError("too few GPUs", "rank 3", "start fewer").of(Code::gpu, {3})),
            "too few GPUs\n  --> rank 3\n  hint: start fewer\n  note: lockstep doctor, started the same way, "
            "may show the cause (its check: gpus)");
}

TEST(Report, IsOneLineOfJsonForAProgram) {
  EXPECT_EQ(
      fault_as_json(Error("it \"left\"", "rank 0", "look").of(Code::rank_lost, {1, 2})),
      R"({"code":"rank-lost","ranks":[1,2],"what":"it \"left\"","where":"rank 0","hint":"look","exit":1})");
  EXPECT_NE(fault_as_json(std::bad_alloc()).find(R"("code":"no-memory")"), std::string::npos);
  EXPECT_NE(fault_as_json(InputError("x")).find(R"("code":"bad-input")"), std::string::npos);
}

TEST(Report, GoesToTheFileThatTheEnvironmentNames) {
  const test::TempFolder folder;
  const auto file = (folder.path() / "errors.jsonl").string();
  ::setenv("LOCKSTEP_ERRORS", file.c_str(), 1);
  note_fault(Error("one"));
  note_fault(Error("two\nlines"));
  ::setenv("LOCKSTEP_ERRORS", (folder.path() / "no/such/folder").c_str(), 1);
  note_fault(Error("three"));  // said on the screen all the same
  ::unsetenv("LOCKSTEP_ERRORS");
  std::ifstream in(file);
  std::stringstream text;
  text << in.rdbuf();
  EXPECT_EQ(text.str(), fault_as_json(Error("one")) + "\n" + fault_as_json(Error("two\nlines")) + "\n");
}

TEST(Report, FollowsNoLinkOfAnotherUserAndWaitsForNoReader) {
  const test::TempFolder folder;
  const auto file = (folder.path() / "mine").string(), link = (folder.path() / "link").string(),
             pipe = (folder.path() / "pipe").string();
  std::ofstream(file).close();
  std::filesystem::create_symlink(file, link);
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  ::setenv("LOCKSTEP_ERRORS", pipe.c_str(), 1);
  note_fault(Error("nobody reads it"));
  ::setenv("LOCKSTEP_ERRORS", link.c_str(), 1);
  note_fault(Error("one"));
  const auto size = std::filesystem::file_size(file);
  EXPECT_GT(size, 0u) << "an own link";
  if (::lchown(link.c_str(), 1, 1) == 0) {  // root alone can give a link away
    note_fault(Error("two"));
    EXPECT_EQ(std::filesystem::file_size(file), size);
  }
  ::unsetenv("LOCKSTEP_ERRORS");
}

}  // namespace
}  // namespace lockstep::launch
