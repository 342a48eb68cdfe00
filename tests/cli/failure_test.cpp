// How an error becomes text and an exit status; each that touches the whole process in one of its own.
#include "trainer/cli/failure.h"

#include <cstdlib>
#include <thread>

#include "support.h"
#include "tools/cluster/job_script.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/options.h"

namespace lockstep::cli {
namespace {

using ::testing::ExitedWithCode;

struct Left {
  int status;
  std::string said;
};

Left left_after(const std::function<void()>& act, bool alike = true) {
  ::testing::internal::CaptureStderr();
  const int status = guarded([&](bool& same) {
    same = alike;
    act();
    return 7;
  });
  return {status, ::testing::internal::GetCapturedStderr()};
}

TEST(CliFailure, LeavesWithTheStatusOfItsKind) {
  EXPECT_EQ(left_after([] {}).status, 7);
  EXPECT_EQ(left_after([] { throw InputError("x"); }).status, 2);
  EXPECT_EQ(left_after([] { throw UsageError("x"); }, false).status, 2);
  EXPECT_EQ(left_after([] { throw Error("x"); }).status, 1);
  EXPECT_EQ(left_after([] { throw std::runtime_error("x"); }).status, 1);
  EXPECT_EQ(left_after([] { throw 3; }).status, 1);
}

TEST(CliFailure, SaysWhatWhereAndWhatToDoOnce) {
  for (const bool alike : {true, false})
    EXPECT_EQ(left_after([] { throw InputError("bad key", "a.yaml:3:1", "remove it"); }, alike).said,
              "error: bad key\n  --> a.yaml:3:1\n  hint: remove it\n");
  EXPECT_EQ(left_after([] { throw 3; }).said,
            "error: an exception that is not a std::exception was thrown\n");
  EXPECT_EQ(left_after([] {}).said, "");
}

TEST(CliFailure, OfWrongUseRankZeroAloneSpeaks) {
  ::setenv("RANK", "1", 1), ::setenv("WORLD_SIZE", "2", 1);
  const auto left = left_after([] { throw UsageError("x"); }, false);
  ::unsetenv("RANK"), ::unsetenv("WORLD_SIZE");
  EXPECT_EQ(left.status, 2);
  EXPECT_EQ(left.said, "");
}

TEST(CliFailureDeathTest, ATraceNamesTheFunctionThatThrew) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";  // whether to trace is asked once a process
  ::setenv("LOCKSTEP_TRACE", "1", 1);
  EXPECT_EXIT(std::exit(guarded([](bool& alike) { return alike = true, test::call("status /nowhere"); })),
              ExitedWithCode(2),
              "error: no such run folder\n(.|\n)*frame #[0-9]+: .*run_folder::(judge|read_status)");
  ::unsetenv("LOCKSTEP_TRACE");
  ::testing::FLAGS_gtest_death_test_style = "fast";
}

}  // namespace
}  // namespace lockstep::cli
