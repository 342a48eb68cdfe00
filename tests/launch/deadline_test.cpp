#include "lockstep/launch/scheduler.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "environments.h"
#include "lockstep/base/files/file.h"
#include "temp_folder.h"

namespace lockstep {
using namespace test;
using namespace std::chrono_literals;

namespace {

launch::Time local_time(int year, int month, int day, int hour, int minute) {
  std::tm parts{};
  parts.tm_year = year - 1900;
  parts.tm_mon = month - 1;
  parts.tm_mday = day;
  parts.tm_hour = hour;
  parts.tm_min = minute;
  parts.tm_isdst = -1;
  return std::chrono::system_clock::from_time_t(mktime(&parts));
}

// what qstat -f of OpenPBS 23.06 prints, shortened
const char* const kQstat =
    "Job Id: 7.server\n"
    "    Job_Name = train\n"
    "    resources_used.walltime = 00:00:05\n"
    "    Resource_List.select = 2:ncpus=2:mpiprocs=2\n"
    "    Resource_List.walltime = 01:30:00\n"
    "    stime = Thu Jan  1 10:00:00 2026\n"
    "    Variable_List = PBS_O_HOME=/home/a,PBS_O_PATH=/usr/bin:\n"
    "\t/bin,Resource_List.walltime = 99:00:00\n";

// a folder at the front of PATH with programs of our own
class Commands : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("PATH");
    before_ = path ? path : "";
    setenv("PATH", (folder_.string() + ":" + before_).c_str(), 1);
  }
  void TearDown() override { setenv("PATH", before_.c_str(), 1); }
  void write(const std::string& name, const std::string& script) {
    std::ofstream(folder_ / name) << "#!/bin/sh\n" << script << "\n";
    std::filesystem::permissions(folder_ / name, std::filesystem::perms::owner_all);
  }
  std::string read(const std::string& name) { return base::read_text(folder_ / name); }
  test::TempFolder temp_;
  std::filesystem::path folder_ = temp_.path();
  std::string before_;
};

const Job kSlurmJob{.scheduler = "slurm", .job_id = "42"};

TEST(Deadline, ReadsEachSource) {
  EXPECT_EQ(launch::parse_epoch("1767225600"), launch::Time(1767225600s));
  EXPECT_EQ(launch::time_in("2026-01-01T10:30:00"), local_time(2026, 1, 1, 10, 30));
  EXPECT_EQ(launch::parse_qstat(kQstat), local_time(2026, 1, 1, 11, 30));
  EXPECT_EQ(launch::job_deadline(kSlurmJob, env("SLURM_JOB_END_TIME=1767225600")), launch::Time(1767225600s));
}

TEST(SecondsIn, ReadsTheTimesOfSchedulers) {
  EXPECT_EQ(launch::seconds_in("1-02:03:04"), 93784s);
  EXPECT_EQ(launch::seconds_in("01:30:00"), 5400s);
  EXPECT_EQ(launch::seconds_in("0:50"), 50s);
  for (const char* text : {"UNLIMITED", "", "1:2:3:4", "a-1:00:00"})
    EXPECT_EQ(launch::seconds_in(text), 0s) << text;
}

TEST(Deadline, WhatSaysNothingIsNothing) {
  for (const char* text :
       {"", "NONE", "Unknown", "N/A", "2026-13-01T00:00:00", "2026-01-01T00:00:00x", "yesterday"}) {
    EXPECT_FALSE(launch::time_in(text)) << text;
  }
  for (const char* text : {"", "0", "-5", "12x", "99999999999999999999"})
    EXPECT_FALSE(launch::parse_epoch(text)) << text;
  EXPECT_FALSE(launch::parse_qstat(""));
  EXPECT_FALSE(launch::parse_qstat("    Resource_List.walltime = 01:00:00\n"));  // not started
  EXPECT_FALSE(
      launch::parse_qstat("    Resource_List.walltime = a:b\n    stime = Thu Jan  1 10:00:00 2026\n"));
}

TEST_F(Commands, AskSqueue) {
  setenv("SLURM_TIME_FORMAT", "relative", 1);
  write("squeue",
        "echo \"$@ $SLURM_TIME_FORMAT\" > " + (folder_ / "args").string() + "; echo 2026-01-01T10:30:00");
  EXPECT_EQ(launch::job_deadline(kSlurmJob, {}), local_time(2026, 1, 1, 10, 30));
  unsetenv("SLURM_TIME_FORMAT");
  EXPECT_EQ(read("args"), "-h -j 42 -o %e standard\n");
}

TEST_F(Commands, AnArrayTaskAsksForItselfAlone) {
  write("squeue", "echo \"$3\" > " + (folder_ / "args").string() + "; echo 2026-01-01T10:30:00");
  launch::job_deadline(kSlurmJob, env("SLURM_ARRAY_JOB_ID=42 SLURM_ARRAY_TASK_ID=3"));
  EXPECT_EQ(read("args"), "42_3\n");
}

// A scheduler that is busy, or restarts, when the run begins.
TEST_F(Commands, ASchedulerThatGivesNoAnswerIsAskedAgain) {
  write("squeue", "exit 1");
  const launch::JobEnd end(kSlurmJob, {}, 10s, 10ms);
  EXPECT_FALSE(end.known());
  write("squeue", "echo 2099-01-01T10:30:00");
  while (!end.known()) std::this_thread::sleep_for(5ms);
  EXPECT_EQ(end.known(), local_time(2099, 1, 1, 10, 30));
}

TEST_F(Commands, QstatKnowsAPbsJob) {
  write("qstat", "[ \"$2\" = 7.server ] && cat <<'X'\n" + std::string(kQstat) + "X");
  EXPECT_EQ(launch::job_deadline({.scheduler = "pbs", .job_id = "7.server"}, {}),
            local_time(2026, 1, 1, 11, 30));
}

TEST_F(Commands, AJobIdIsNeverAnOptionNorAShellLine) {
  write("squeue", "touch " + (folder_ / "asked").string());
  for (const char* id : {"", "--help", "42;reboot", "$(id)", "../x", "4 2"})
    EXPECT_FALSE(launch::job_deadline({.scheduler = "slurm", .job_id = id}, {})) << id;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "asked"));
}

TEST(Deadline, AJobShorterThanTheMarginLeavesHalfway) {
  using launch::usable_job_end;
  using std::chrono::seconds;
  const launch::Time now(seconds(1'000'000));
  EXPECT_EQ(usable_job_end(std::nullopt, seconds(60), now), std::nullopt);
  EXPECT_EQ(usable_job_end(now + seconds(61), seconds(60), now), now + seconds(61));
  EXPECT_EQ(*usable_job_end(now + seconds(60), seconds(60), now) - seconds(60), now + seconds(30));
  EXPECT_EQ(*usable_job_end(now + seconds(10), seconds(60), now) - seconds(60), now + seconds(5));
  EXPECT_EQ(usable_job_end(now - seconds(5), seconds(60), now), now - seconds(5));
}

}  // namespace
}  // namespace lockstep
