// Programs that do what they should not, and the limits that end them.
#include "course/workshop/run.h"

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <thread>

#include "../temp_folder.h"

namespace lockstep::workshop {
namespace {

using test::TempFolder;
using namespace std::chrono_literals;

Command shell(const TempFolder& folder, const std::string& script) {
  return {{"bash", "-c", script}, launch::current_environment(), folder.path()};
}

Ending run(const std::string& script, const ProgramLimits& limits = {.time = 20s}) {
  const TempFolder folder;
  return run_limited({shell(folder, script)}, limits).front();
}

TEST(RunLimited, ReturnsOutputFactsAndExitCode) {
  const auto ending = run("read line; echo out; echo err >&2; echo fact >&3; exit 7");
  EXPECT_EQ(ending.why, Why::left);
  EXPECT_EQ(ending.status, 7);
  EXPECT_EQ(ending.printed, "out\nerr\n");
  EXPECT_EQ(ending.facts, "fact\n");
}

TEST(RunLimited, ReturnsTheSignalOfACrash) {
  const auto ending = run("kill -TERM 0; sleep 100");  // its own process group
  EXPECT_EQ(ending.why, Why::signal);
  EXPECT_EQ(ending.status, SIGTERM);
}

TEST(RunLimited, TellsAnEndlessLoopFromAProgramThatWaits) {
  const TempFolder folder;
  const auto endings = run_limited(
      {shell(folder, "while :; do :; done"), shell(folder, "trap '' TERM; sleep 100")}, {.time = 1500ms});
  EXPECT_EQ(endings[0].why, Why::too_long);
  EXPECT_TRUE(endings[0].was_busy);
  EXPECT_EQ(endings[1].why, Why::too_long);
  EXPECT_FALSE(endings[1].was_busy);
}

TEST(RunLimited, RefusesTooMuchMemory) {
  const auto ending = run("exec python3 -c 'bytearray(1 << 30)'", {.time = 20s, .memory = size_t{300} << 20});
  EXPECT_NE(ending.printed.find("MemoryError"), std::string::npos) << ending.printed;
}

TEST(RunLimited, StopsEndlessOutput) {
  for (const char* script : {"while :; do echo yes; done", "while :; do echo yes >&3; done"}) {
    const auto ending = run(script, {.time = 20s, .output = 100'000});
    EXPECT_EQ(ending.why, Why::too_much_output);
    EXPECT_EQ(ending.printed.size() + ending.facts.size(), 100'000u);
  }
}

TEST(RunLimited, EndsAFileThatGrowsTooLarge) {
  const auto ending = run("exec head -c 3000000 /dev/zero > big", {.time = 20s, .file = 1'000'000});
  EXPECT_EQ(ending.why, Why::signal);
  EXPECT_EQ(ending.status, SIGXFSZ);
}

TEST(RunLimited, GivesTheOthersTheGraceOnceOneHasFailed) {
  const TempFolder folder;
  const auto endings =
      run_limited({shell(folder, "exit 1"), shell(folder, "sleep 100")}, {.time = 100s, .grace = 300ms});
  EXPECT_EQ(endings[1].why, Why::too_long);
  EXPECT_LT(endings[1].seconds, 60);
}

TEST(RunLimited, ReportsAProgramThatCannotBeStarted) {
  const TempFolder folder;
  const auto ending = run_limited({{{"./nothing"}, {}, folder.path()}}, {}).front();
  EXPECT_EQ(ending.status, 127);
  EXPECT_EQ(ending.printed, "cannot start ./nothing: No such file or directory\n");
}

TEST(RunLimited, KillsItsProgramsWhenInterrupted) {
  const TempFolder folder;
  const auto pid_in = [&] {
    std::ifstream file(folder / "pid");
    pid_t pid = 0;
    file >> pid;
    return pid;
  };
  const pid_t checker = ::fork();
  if (checker == 0) {
    try {
      run_limited({shell(folder, "(echo $BASHPID > pid; exec sleep 100) & wait")}, {.time = 20s});
    } catch (const Interrupted& word) {
      ::_exit(word.number());
    }
    ::_exit(99);
  }
  while (pid_in() == 0) std::this_thread::sleep_for(5ms);
  ::kill(checker, SIGTERM);
  int status = 0;
  ::waitpid(checker, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), SIGTERM);
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (::kill(pid_in(), 0) == 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(5ms);  // until init has reaped it
  EXPECT_NE(::kill(pid_in(), 0), 0);
}

}  // namespace
}  // namespace lockstep::workshop
