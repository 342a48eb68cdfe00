#include "lockstep/launch/process/stop_signal.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/launch/process/alarm.h"

namespace lockstep::train {
namespace {

// The exit status of a child that does this.
int status_of(void (*work)()) {
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
  EXPECT_EQ(told_of_parents("mpirun"), "SIGTERM from mpirun, as by Ctrl-C");
  EXPECT_EQ(told_of_parents("bash"), "SIGTERM");
}

TEST(StopSignals, TheSecondLeavesAtOnce) {
  EXPECT_EQ(status_of([] {
              const launch::StopSignals signals;
              ::raise(SIGTERM);
              ::usleep(600'000);
              ::raise(SIGTERM);
            }),
            1);
  EXPECT_EQ(status_of([] {
              const launch::StopSignals signals;
              ::raise(SIGINT);
              ::usleep(600'000);
              ::raise(SIGINT);
            }),
            1);
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
  EXPECT_EQ(status_of([] {
              const launch::StopSignals signals;
              const launch::Grace patience(0.1, [] { ::_exit(7); });
              ::raise(SIGTERM);
              ::sleep(5);
            }),
            7);
  EXPECT_EQ(status_of([] {
              const launch::StopSignals signals;
              launch::Grace patience(0.1, [] { ::_exit(7); });
              ::raise(SIGTERM);
              patience.agreed();
              ::usleep(300'000);
            }),
            42);
  EXPECT_EQ(status_of([] {
              const launch::StopSignals signals;
              const launch::Grace patience(0.1, [] { ::_exit(7); });
              ::raise(SIGUSR1);
              ::raise(SIGTERM);  // the one that counts
              ::sleep(5);
            }),
            7);
  EXPECT_EQ(status_of([] {  // a stop that was asked for is no sign of a dead peer
              const launch::StopSignals signals;
              const launch::Grace patience(0.1, [] { ::_exit(7); });
              ::raise(SIGUSR1);
              ::usleep(300'000);
            }),
            42);
}

}  // namespace
}  // namespace lockstep::train
