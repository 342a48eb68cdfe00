#include "tools/job/job.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <optional>

#include "lockstep/base/format.h"
#include "refusal.h"
#include "temp_folder.h"

namespace lockstep::job {
namespace {

using test::has;
using namespace std::chrono_literals;

void unblock_signals() {
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

TEST(Signals, KeepTheSigtermThatEndsAJob) {
  Signals signals;
  signals.note(SIGUSR1);
  EXPECT_EQ(signals.stop, SIGUSR1);
  signals.note(SIGTERM);
  signals.note(SIGUSR1);
  unblock_signals();
  EXPECT_EQ(signals.stop, SIGTERM);
}

class Started : public ::testing::Test {
 protected:
  RanksEnd run(const std::string& script, Environment environment = {}, int early_signal = 0,
               bool ignores_warning = false) {
    environment["PATH"] = "/usr/bin:/bin";
    job_environment_ = {{"PBS_JOBID", "7.x"}, {"PBS_NODEFILE", "nodes"}};
    const auto job = make_job(job_environment_, [](const auto&) { return base::Answer(); });
    Signals signals;
    signals.ignores_warning = ignores_warning;
    if (early_signal != 0) ::raise(early_signal);
    plan_.words = {script};
    plan_.environment = environment;
    const auto end = run_ranks(*job, signals, plan_);
    unblock_signals();
    stop_ = signals.stop;
    return end;
  }

  Environment job_environment_;
  RanksPlan plan_ = {.launcher = {"sh", "-c"}, .words = {}, .environment = {}};
  int stop_ = 0;
};

TEST_F(Started, RanksSeeAVariableThatIsSetToNothing) {
  ::setenv("TEST_OF_ANOTHER_JOB", "x", 1);
  EXPECT_EQ(run("exit $((${CUDA_VISIBLE_DEVICES+3} + ${TEST_OF_ANOTHER_JOB+4} + 0))",
                {{"CUDA_VISIBLE_DEVICES", ""}})
                .status,
            3);
}

TEST_F(Started, RanksHearASignalFromBeforeTheirStart) {
  EXPECT_EQ(run("exec sleep 60", {}, SIGTERM).status, 128 + SIGTERM);
  EXPECT_EQ(stop_, SIGTERM);
}

TEST_F(Started, RanksOfAShortJobDoNotGetTheFirstWarning) {
  EXPECT_EQ(run("sleep 0.3; exit 5", {}, SIGUSR1, true).status, 5);
  EXPECT_EQ(stop_, 0);
  run("kill -USR1 $PPID; sleep 0.3; kill -USR1 $PPID; sleep 0.3", {}, 0, true);
  EXPECT_EQ(stop_, SIGUSR1);
}

TEST_F(Started, RanksOnAnotherNodeThatRanOutOfMemoryAreNoticed) {
  for (const auto* words :
       {"Detected 1 oom_kill event in StepId=7.0.", "Step 7.0 exceeded memory limit (9 > 8)"})
    EXPECT_TRUE(has(run(format("printf 'a\\n{}\\r%5000s' b >&2; exit 1", words)).out_of_memory, words));
  EXPECT_EQ(run("echo 'no kill' >&2; exit 1").out_of_memory, "");
}

// As mpirun 4.1 hangs after all ranks ran out of memory at their start. What LOCKSTEP_SETUP started runs on,
// and so does a rank that has executed another program.
TEST_F(Started, ALauncherThatOutlivesRanksWithoutARunIsKilledAlone) {
  const auto other = ::fork();
  if (other == 0) ::execlp("sleep", "sleep", "60", nullptr);
  const test::TempFolder folder;
  const auto rank =
      folder.write("rank", "#!/bin/sh\nsleep 0.5\nexec sh -c 'sleep 1.2; echo > \"$0.end\"' \"$0\"\n");
  std::filesystem::permissions(rank, std::filesystem::perms::owner_all);
  plan_.launcher = {"sh", "-c", "trap 'kill $!; exit 9' TERM; \"$0\"; sleep 60 & wait"};
  plan_.run_file = folder.path() / "run";
  plan_.patience = 0ms;
  EXPECT_EQ(run(rank).status, 128 + SIGTERM);
  EXPECT_TRUE(std::filesystem::exists(rank + ".end"));
  EXPECT_EQ(::waitpid(other, nullptr, WNOHANG), 0);
  ::kill(other, SIGKILL);
  ::waitpid(other, nullptr, 0);
}

class MemoryOf : public ::testing::Test {
 protected:
  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((folder_.path() / file).parent_path());
    folder_.write(file, text);
  }
  std::string kills(const std::string& mark, const std::string& own) const {
    write("proc/self/cgroup", own);
    const auto found = memory_kills(mark, folder_.path().string());
    return format("{} {}{}", found.count, found.limits, found.is_guess ? " (a guess)" : "");
  }
  test::TempFolder folder_;
};

TEST_F(MemoryOf, AJobIsReadFromItsOwnGroups) {
  const std::string group = "sys/fs/cgroup/slurm/job_7/";
  write(group + "memory.events", "low 0\noom 2\noom_kill 1\n");
  write(group + "memory.max", "2147483648\n");
  write(group + "memory.peak", "2147418112\n");
  write("sys/fs/cgroup/slurm/memory.events", "oom_kill 5\n");  // another job's, too
  EXPECT_EQ(kills("/job_7", "0::/slurm/job_7/step_batch/user\n"), "1 limit 2.00 GiB, peak 2.00 GiB");
}

TEST_F(MemoryOf, AJobIsReadFromVersion1) {
  const std::string group = "sys/fs/cgroup/memory/pbs/7.x/";
  write(group + "memory.oom_control", "under_oom 0\noom_kill 1\n");
  write(group + "memory.limit_in_bytes", "2147483648\n");
  EXPECT_EQ(kills("/7.x", "9:name=systemd:/x\n4:memory:/pbs/7.x\n"), "1 limit 2.00 GiB, peak unknown");
}

TEST_F(MemoryOf, AJobWithoutAGroupIsTheNodes) {
  write("proc/vmstat", "nr_free_pages 7\noom_kill 3\n");
  EXPECT_EQ(kills("/job_8", "0::/system.slice\n"),
            "3 the kernel killed a process on this node; the process may belong to another job (a guess)");
  write("sys/fs/cgroup/slurm/job_8/memory.events", "oom_kill 0\n");
  EXPECT_EQ(kills("/job_8", "0::/slurm/job_8\n"), "0 ");
}

TEST(Settings, ComeFromWordsOrFromAFile) {
  EXPECT_EQ(settings_in("a=1  b=[0.8,0.9]"),
            (std::vector<std::string>{"--set", "a=1", "--set", "b=[0.8,0.9]"}));
  for (const char* text : {"a='b'", "a=\"b\"", "a=\\b"})  // qsub -v turns quotes into backslashes
    EXPECT_TRUE(has(test::refusal_of([&] { settings_in(text); }), "SET=@FILE")) << text;
  const test::TempFolder folder;
  EXPECT_EQ(settings_in("@" + folder.write("s", "# mine\nx=[0.8, 0.9]\n\nrun.name=it's")),
            (std::vector<std::string>{"--set", "x=[0.8, 0.9]", "--set", "run.name=it's"}));
}

TEST(Losses, AreTheOnlyReasonForAnotherStart) {
  const auto line = [](const char* code) {
    return std::string("{\"code\":\"") + code + "\",\"ranks\":[3],\"what\":\"x\"}";
  };
  for (const char* code : {"rank-lost", "rank-late", "not-joined"})
    EXPECT_TRUE(only_ranks_were_lost({line(code)}, false)) << code;
  EXPECT_FALSE(only_ranks_were_lost({line("rank-lost"), line("failed")}, false));
  const std::string woken =
      R"({"code": "failed", "ranks": [3], "what": "x", "met_in": {"call": "all-reduce", "number": 4}})";
  EXPECT_TRUE(only_ranks_were_lost({line("rank-late"), woken}, false)) << "it was stopped";
  EXPECT_TRUE(only_ranks_were_lost({line("nccl")}, true));
  EXPECT_FALSE(only_ranks_were_lost({line("no-memory")}, true));
  EXPECT_FALSE(only_ranks_were_lost({line("bad-input")}, true));
}

}  // namespace
}  // namespace lockstep::job
