#include "lockstep/launch/process/report.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <new>
#include <stdexcept>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/launch/process/alarm.h"
#include "lockstep/launch/process/leave.h"
#include "lockstep/launch/process/stop_signal.h"
#include "lockstep/launch/process/terminal.h"
#include "temp_folder.h"

namespace lockstep::launch {
namespace {

TEST(Report, SaysTheDoctorsCheckOfACode) {
  EXPECT_EQ(report_of(InputError("too few GPUs", "rank 3", "start fewer").of(Code::gpu, {3})),
            "too few GPUs\n  --> rank 3\n  hint: start fewer\n  note: run lockstep doctor with the same "
            "launcher; its check \"gpus\" may show the cause");
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
  EXPECT_EQ(base::read_text(file),
            fault_as_json(Error("one")) + "\n" + fault_as_json(Error("two\nlines")) + "\n");
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

// What ends a process that nobody catches an error in; each in a process of its own.

using ::testing::ExitedWithCode;

void throw_in_a_thread(const std::string& what) {
  std::thread([&] { throw std::runtime_error(what); }).join();
}

TEST(UncaughtDeathTest, ItIsSaidToTheOthersAndHereAndIsNoAbort) {
  const auto die = [] {
    exit_on_uncaught_errors();
    const auto heard = on_uncaught_error(
        [](const std::string& what) { return std::fprintf(stderr, "told: %s\n", what.c_str()), nullptr; });
    {
      const auto gone = on_uncaught_error(
          [](const std::string&) { return std::fprintf(stderr, "told who is gone\n"), nullptr; });
    }
    throw_in_a_thread("enforce fail: op.preamble.length <= op.nbytes. 8 vs 4. x");
  };
  const std::string words = "the ranks' calls differ: a message of 8 bytes arrived instead of one of 4\n";
  EXPECT_EXIT(die(), ExitedWithCode(1),
              "^told: " + words + "error: " + words + "  --> .*\n  hint: run with ");
}

TEST(UncaughtDeathTest, AListenersErrorIsSaidInItsPlace) {
  const auto die = [] {
    exit_on_uncaught_errors();
    const auto knows = on_uncaught_error([](const std::string& what) {
      return std::make_exception_ptr(
          Error("rank 1 has died", "where it was seen", "look there; not: " + what));
    });
    throw_in_a_thread("Process group watchdog thread terminated");
  };
  EXPECT_EXIT(die(), ExitedWithCode(1),
              "^error: rank 1 has died\n  --> where it was seen\n  hint: look there; not: Process group");
}

TEST(UncaughtDeathTest, TheProgramsOwnHandlerStays) {
  const auto die = [] {
    std::set_terminate([] { std::_Exit(7); });
    exit_on_uncaught_errors();
    throw_in_a_thread("lost");
  };
  EXPECT_EXIT(die(), ExitedWithCode(7), "");
}

using namespace std::chrono_literals;

constexpr auto kPatience = 60s;

TEST(StallWatch, ActsOnceNoSignHasComeForTheLimitAndNotBeforeTheFirst) {
  std::promise<void> acted;
  auto happened = acted.get_future();
  StallWatch watch({100ms}, [&] { acted.set_value(); });
  EXPECT_EQ(happened.wait_for(500ms), std::future_status::timeout) << "no work has begun";
  watch.sign();
  EXPECT_EQ(happened.wait_for(kPatience), std::future_status::ready);
}

TEST(StallWatch, WaitsOnceTheWorkIsOver) {
  std::promise<void> acted;
  auto happened = acted.get_future();
  StallWatch watch({1s}, [&] { acted.set_value(); });
  watch.sign();
  watch.rest();
  EXPECT_EQ(happened.wait_for(1500ms), std::future_status::timeout);
}

TEST(StallWatch, DoesNotWaitForWhatCannotCome) {
  std::promise<void> acted;
  StallWatch watch({1h, [] { return true; }}, [&] { acted.set_value(); });
  watch.sign();
  EXPECT_EQ(acted.get_future().wait_for(kPatience), std::future_status::ready);
}

TEST(Terminal, KnowsWhenMpirunRewritesLines) {
  for (const char* word : {"--tag-output", "-tag-output", "-timestamp-output", "--output-filename", "-xterm",
                           "--output", "-outfile-pattern", "-errfile-pattern", "-prepend-rank", "-l"})
    EXPECT_TRUE(launch::rewrites_output({"mpirun", "-n", "2", word, "x", "lockstep"})) << word;
  EXPECT_TRUE(launch::rewrites_output({"mpirun", "--mca", "orte_tag_output", "1", "lockstep"}));
  EXPECT_FALSE(launch::rewrites_output({"mpirun", "-q", "-n", "2", "lockstep", "train", "output.yaml"}));
  EXPECT_FALSE(launch::rewrites_output({"mpirun", "-n", "2", "lockstep", "train", "--set=run.dir=output"}));
}

TEST(Terminal, AFileIsNone) {
  EXPECT_FALSE(launch::terminal_behind(-1));
}

}  // namespace
}  // namespace lockstep::launch

namespace lockstep::train {
namespace {

// The exit status of a child that does this.
int status_of(const std::function<void()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    ::_exit(42);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// What a rank tells of a SIGTERM that its parent, a process of this name, sends.
std::string told_of_parents(const char* name) {
  int said[2] = {};
  EXPECT_EQ(::pipe(said), 0);
  const pid_t parent = ::fork();
  if (parent == 0) {
    ::prctl(PR_SET_NAME, name);
    const pid_t rank = ::fork();
    if (rank == 0) {
      const launch::StopSignals signals;
      (void)!::write(said[1], ".", 1);
      while (launch::StopSignals::received() == 0) ::usleep(1000);
      const auto origin = launch::StopSignals::origin();
      (void)!::write(said[1], origin.data(), origin.size());
      ::_exit(0);
    }
    char ready = 0;
    (void)!::read(said[0], &ready, 1);
    ::kill(rank, SIGTERM);
    ::waitpid(rank, nullptr, 0);
    ::_exit(0);
  }
  ::waitpid(parent, nullptr, 0);
  ::close(said[1]);
  char text[100] = {};
  (void)!::read(said[0], text, sizeof text - 1);
  ::close(said[0]);
  return text;
}

TEST(StopSignals, NameTheMpirunThatSentOne) {
  EXPECT_EQ(told_of_parents("mpirun"), "SIGTERM from mpirun (for example after Ctrl-C)");
  EXPECT_EQ(told_of_parents("bash"), "SIGTERM");
}

TEST(StopSignals, TheSecondLeavesAtOnce) {
  for (const int signal : {SIGTERM, SIGINT})
    EXPECT_EQ(status_of([signal] {
                const launch::StopSignals signals;
                ::raise(signal);
                ::usleep(600'000);
                ::raise(signal);
              }),
              1)
        << signal;
}

TEST(StopSignals, AWarningIsNoImpatience) {
  EXPECT_EQ(status_of([] {
              const launch::StopSignals signals;
              ::raise(SIGUSR1);
              ::usleep(600'000);
              ::raise(SIGUSR1);  // while the checkpoint is being written
              ::raise(SIGTERM);  // the limit itself, which the warning came before
              if (launch::StopSignals::received() != SIGUSR1) ::_exit(1);
            }),
            42);
}

TEST(StopSignals, OneRequestForwardedTwiceIsOne) {
  EXPECT_EQ(status_of([] {
              const launch::StopSignals signals;
              ::raise(SIGTERM);
              ::raise(SIGTERM);
            }),
            42);
}

TEST(StopSignals, WhatCameWhileLoadingIsKnownLater) {
  EXPECT_EQ(status_of([] {
              const launch::EarlySignals loading;
              ::raise(SIGUSR1);
              ::usleep(300'000);
              ::raise(SIGUSR1);  // however often
              const launch::StopSignals training;
              if (launch::StopSignals::received() != SIGUSR1) ::_exit(1);
              ::usleep(300'000);
              ::raise(SIGUSR1);  // a job script's copy of it
            }),
            42);
}

TEST(StopSignals, WhileRanksMeetTheOthersAreLeftAlone) {
  EXPECT_EQ(status_of([] {
              const launch::EarlySignals meeting;
              ::raise(SIGTERM);
            }),
            -SIGTERM);
}

TEST(Grace, FitsInTheLaunchersKillDelay) {
  Job job;
  job.launcher = "openmpi";
  EXPECT_LT(launch::grace_seconds(job, {}), 1.9);
  EXPECT_GT(launch::grace_seconds(job, {{"OMPI_MCA_odls_base_sigkill_timeout", "8"}}), 8);
  job.launcher = job.scheduler = "slurm";
  EXPECT_LT(launch::grace_seconds(job, {}), 30);
}

TEST(Grace, GivesUpOnlyWhenNobodyAnswers) {
  const auto status_after = [](const std::function<void(launch::Grace&)>& work) {
    return status_of([&] {
      const launch::StopSignals signals;
      launch::Grace patience(0.1, [] { ::_exit(7); });
      work(patience);
    });
  };
  EXPECT_EQ(status_after([](auto&) {
              ::raise(SIGTERM);
              ::sleep(5);
            }),
            7);
  EXPECT_EQ(status_after([](auto& patience) {
              ::raise(SIGTERM);
              patience.agreed();
              ::usleep(300'000);
            }),
            42);
  EXPECT_EQ(status_after([](auto&) {
              ::raise(SIGUSR1);
              ::raise(SIGTERM);  // the one that counts
              ::sleep(5);
            }),
            7);
  EXPECT_EQ(status_after([](auto&) {  // a stop that was asked for is no sign of a dead peer
              ::raise(SIGUSR1);
              ::usleep(300'000);
            }),
            42);
}

}  // namespace
}  // namespace lockstep::train
