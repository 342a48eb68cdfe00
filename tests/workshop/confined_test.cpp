// Programs that do what they should not, and the checker that stands it.
#include "course/workshop/process.h"

#include <gtest/gtest.h>

#include <fcntl.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "../temp_folder.h"

namespace lockstep::workshop {
namespace {

using test::TempFolder;
using namespace std::chrono_literals;

ConfinedCommand shell(const TempFolder& folder, const std::string& script) {
  return {{"bash", "-c", script}, launch::current_environment(), folder.path()};
}

Ending run(const TempFolder& folder, const std::string& script, const ProgramLimits& limits = {.time = 20s}) {
  return run_confined({shell(folder, script)}, limits).front();
}

// a number that a program wrote into its folder
pid_t pid_in(const std::string& path) {
  std::ifstream file(path);
  pid_t pid = 0;
  file >> pid;
  return pid;
}

bool is_gone(pid_t pid) {
  return pid > 0 && ::kill(pid, 0) != 0;
}

TEST(Confined, SaysWhatAProgramPrintedToldAndLeftWith) {
  const TempFolder folder;
  const auto ending = run(folder, "echo out; echo err >&2; echo fact >&3; exit 7");
  EXPECT_EQ(ending.why, Why::left);
  EXPECT_EQ(ending.status, 7);
  EXPECT_EQ(ending.printed, "out\nerr\n");
  EXPECT_EQ(ending.facts, "fact\n");
}

TEST(Confined, EndsAChildThatMadeItselfADaemon) {
  const TempFolder folder;
  const auto ending =
      run(folder, "setsid bash -c 'echo $$ > pid; exec sleep 100' & until [ -s pid ]; do sleep 0.01; done");
  EXPECT_TRUE(ending.is_well());
  EXPECT_TRUE(is_gone(pid_in(folder / "pid")));
}

TEST(Confined, EndsDaemonsOfDaemonsThatIgnoreEverySignalTheyCan) {
  const TempFolder folder;
  const auto ending =
      run(folder,
          "trap '' TERM INT HUP; setsid bash -c 'setsid bash -c \"echo \\$\\$ > pid; sleep 100\" & "
          "sleep 100' & until [ -s pid ]; do sleep 0.01; done");
  EXPECT_TRUE(ending.is_well());
  EXPECT_TRUE(is_gone(pid_in(folder / "pid")));
}

TEST(Confined, RemovesFromSharedMemoryWhatAProgramPutThere) {
  const TempFolder folder;
  const auto name = "/dev/shm/lockstep-test-" + std::to_string(::getpid());
  const auto theirs = name + "-theirs", below = name + "-folder", ours = name + "-ours";
  std::ofstream(ours) << "ours";
  run(folder, "exec 9>" + theirs + "; mkdir " + below + "; exec 8>" + below + "/file; sleep 1");
  EXPECT_FALSE(std::filesystem::exists(theirs));
  EXPECT_FALSE(std::filesystem::exists(below));
  EXPECT_TRUE(std::filesystem::exists(ours));
  std::filesystem::remove(ours);
}

TEST(Confined, RemovesSegmentsOfSystemVToo) {
  const TempFolder folder;
  run(folder,
      "exec python3 -c 'import ctypes, time\n"
      "print(ctypes.CDLL(None).shmget(0, 1 << 20, 0o1600), file=open(\"segment\", \"w\"), flush=True)\n"
      "time.sleep(1)'");
  std::ifstream file(folder / "segment");
  int segment = -1;
  ASSERT_TRUE(file >> segment);
  shmid_ds facts{};
  EXPECT_NE(::shmctl(segment, IPC_STAT, &facts), 0);
}

TEST(Confined, StopsThoseWhoHaveTooMuchMemoryTogether) {
  const TempFolder folder;
  const std::string take = "exec python3 -c 'import time\nheld = b\"x\" * (80 << 20)\ntime.sleep(100)'";
  const auto endings = run_confined({shell(folder, take), shell(folder, take)},
                                    {.time = 20s, .memory = size_t{1} << 30, .together = size_t{120} << 20});
  EXPECT_EQ(endings[0].why, Why::too_much_memory);
  EXPECT_EQ(endings[1].why, Why::too_much_memory);
}

TEST(Confined, CountsTheMemoryOfWhatAProgramStarts) {
  const TempFolder folder;
  const auto ending = run(folder,
                          "for _ in 1 2 3; do setsid python3 -c 'import time\nheld = b\"x\" * (80 << 20)\n"
                          "time.sleep(100)' & done; wait",
                          {.time = 20s, .together = size_t{200} << 20});
  EXPECT_EQ(ending.why, Why::too_much_memory);
}

TEST(Confined, CountsWhatLiesInSharedMemory) {
  const TempFolder folder;
  const auto file = "/dev/shm/lockstep-test-" + std::to_string(::getpid()) + "-large";
  const auto ending = run(folder, "exec 9>" + file + "; head -c 60000000 /dev/zero >&9; sleep 100",
                          {.time = 20s, .together = size_t{50} << 20});
  EXPECT_EQ(ending.why, Why::too_much_memory);
  EXPECT_FALSE(std::filesystem::exists(file));
}

TEST(Confined, LeavesAloneWhatWasThereBefore) {
  const TempFolder folder;
  const pid_t own = ::fork();
  if (own == 0) {
    ::pause();
    ::_exit(0);
  }
  run(folder, "true");
  EXPECT_FALSE(is_gone(own));
  ::kill(own, SIGKILL);
  ::waitpid(own, nullptr, 0);
}

TEST(Confined, StopsWhoIgnoresSIGTERMAndWaits) {
  const TempFolder folder;
  const auto ending = run(folder, "trap '' TERM; sleep 100", {.time = 1500ms});
  EXPECT_EQ(ending.why, Why::too_long);
  EXPECT_FALSE(ending.was_busy);
}

TEST(Confined, KnowsWhoComputesFromWhoWaits) {
  const TempFolder folder;
  const auto endings =
      run_confined({shell(folder, "while :; do :; done"), shell(folder, "sleep 100")}, {.time = 2500ms});
  EXPECT_TRUE(endings[0].was_busy);
  EXPECT_FALSE(endings[1].was_busy);
}

TEST(Confined, KnowsAThreadThatComputesWhileItsProgramWaits) {
  const TempFolder folder;
  const auto ending = run(folder,
                          "exec python3 -c 'import threading\ndef spin():\n  while True: pass\n"
                          "threading.Thread(target=spin).start()'",
                          {.time = 2500ms});
  EXPECT_EQ(ending.why, Why::too_long);
  EXPECT_TRUE(ending.was_busy);
}

TEST(Confined, StopsWhoPrintsWithoutEnd) {
  const TempFolder folder;
  const auto ending = run(folder, "while :; do echo yes; done", {.time = 20s, .output = 100'000});
  EXPECT_EQ(ending.why, Why::too_much_output);
  EXPECT_EQ(ending.printed.size(), 100'000u);
}

TEST(Confined, StopsWhoTellsFactsWithoutEnd) {
  const TempFolder folder;
  const auto ending = run(folder, "while :; do echo yes >&3; done", {.time = 20s, .output = 100'000});
  EXPECT_EQ(ending.why, Why::too_much_output);
  EXPECT_EQ(ending.facts.size(), 100'000u);
}

TEST(Confined, GivesNoMoreMemoryThanIsAllowed) {
  const TempFolder folder;
  const auto ending =
      run(folder, "exec python3 -c 'bytearray(1 << 30)'", {.time = 20s, .memory = size_t{300} << 20});
  EXPECT_NE(ending.printed.find("MemoryError"), std::string::npos) << ending.printed;
}

TEST(Confined, EndsAFileThatGrowsTooLarge) {
  const TempFolder folder;
  const auto ending = run(folder, "exec head -c 3000000 /dev/zero > big", {.time = 20s, .file = 1'000'000});
  EXPECT_EQ(ending.why, Why::signal);
  EXPECT_EQ(ending.status, SIGXFSZ);
  EXPECT_EQ(std::filesystem::file_size(folder / "big"), 1'000'000u);
}

TEST(Confined, WaitsForWhoClosesItsDescriptors) {
  const TempFolder folder;
  const auto ending = run(folder, "exec 0<&- 1>&- 2>&- 3>&-; sleep 0.3; exit 5");
  EXPECT_EQ(ending.status, 5);
  EXPECT_GE(ending.seconds, 0.3);
}

TEST(Confined, HasNothingToReadForWhoReads) {
  const TempFolder folder;
  EXPECT_EQ(run(folder, "read line; echo \"<$line> $?\"").printed, "<> 1\n");
}

TEST(Confined, IsNotReachedByASignalToItsGroup) {
  const TempFolder folder;
  const auto ending = run(folder, "kill -TERM 0; sleep 100");
  EXPECT_EQ(ending.why, Why::signal);
  EXPECT_EQ(ending.status, SIGTERM);
}

TEST(Confined, HandsDownNoDescriptorAndNoIgnoredSignal) {
  const TempFolder folder;
  const int open = ::open("/dev/null", O_RDONLY);
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  const auto ending = run(folder, "ls /proc/self/fd | tr '\\n' ' '; grep SigIgn /proc/self/status");
  std::signal(SIGPIPE, before);
  ::close(open);
  EXPECT_EQ(ending.printed, "0 1 2 3 4 SigIgn:\t0000000000000000\n");  // 4 is ls's own
}

TEST(Confined, GivesTheOthersNoMoreThanGraceOnceOneHasFailed) {
  const TempFolder folder;
  const auto endings =
      run_confined({shell(folder, "exit 1"), shell(folder, "sleep 100")}, {.time = 100s, .grace = 300ms});
  EXPECT_EQ(endings[1].why, Why::too_long);
  EXPECT_LT(endings[1].seconds, 60);
}

TEST(Confined, SaysWhyAProgramCannotBeStarted) {
  const TempFolder folder;
  const auto ending = run_confined({{{"./nothing"}, {}, folder.path()}}, {}).front();
  EXPECT_EQ(ending.status, 127);
  EXPECT_EQ(ending.printed, "./nothing cannot be started: No such file or directory\n");
}

TEST(Confined, LeavesNothingBehindWhenItsOwnProgramIsInterrupted) {
  const TempFolder folder;
  const pid_t checker = ::fork();
  if (checker == 0) {
    try {
      run(folder, "setsid bash -c 'echo $$ > pid; exec sleep 100' & sleep 100");
    } catch (const Interrupted& word) {
      ::_exit(word.number());
    }
    ::_exit(99);
  }
  while (pid_in(folder / "pid") == 0) std::this_thread::sleep_for(5ms);
  ::kill(checker, SIGTERM);
  int status = 0;
  ::waitpid(checker, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), SIGTERM);
  EXPECT_TRUE(is_gone(pid_in(folder / "pid")));
}

TEST(Confined, AProgramThatKillsItsCheckerGoesWithIt) {
  const TempFolder folder;
  const pid_t checker = ::fork();
  if (checker == 0) {
    run(folder, "echo $$ > pid; kill -KILL $PPID; exec sleep 100");
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(checker, &status, 0);
  EXPECT_EQ(WTERMSIG(status), SIGKILL);
  const auto deadline = std::chrono::steady_clock::now() + 60s;
  while (!is_gone(pid_in(folder / "pid")) && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(5ms);
  EXPECT_TRUE(is_gone(pid_in(folder / "pid")));
}

}  // namespace
}  // namespace lockstep::workshop
