// Submitted jobs: sweeps, records, the schedulers' answers.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <set>
#include <thread>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/program.h"
#include "refusal.h"
#include "temp_folder.h"
#include "tools/cluster/job_script.h"
#include "tools/cluster/scheduler.h"

namespace lockstep::cluster {
namespace {

using Words = std::vector<std::string>;

std::vector<Words> swept(const std::string& text) {
  return sweep_tasks({text}, "mine");
}

TEST(Sweep, SplitsValuesAtPlainCommas) {
  const auto values = [](const std::string& text) {
    Words all;
    for (const auto& task : swept(text)) all.push_back(task[0].substr(task[0].find('=') + 1));
    return all;
  };
  EXPECT_EQ(values("a.b=[0.8, 0.9],[1, 2],\"x,y\",it's"), (Words{"[0.8, 0.9]", "[1, 2]", "\"x,y\"", "it's"}));
  EXPECT_EQ(values("run.seed=-1..2"), (Words{"-1", "0", "1", "2"}));
  EXPECT_EQ(values("data.root=../a,b=c"), (Words{"../a", "b=c"}));
}

TEST(Sweep, RejectsLongRanges) {
  EXPECT_THROW(swept("run.seed=-9223372036854775808..9223372036854775807"), InputError);
  EXPECT_EQ(swept("run.seed=9223372036854775806..9223372036854775807").size(), 2U);
}

TEST(Sweep, GivesEachCombinationItsOwnName) {
  const auto tasks = sweep_tasks({"optim.name=a/b,a b", "model.name=x,y"}, "mine");
  std::set<std::string> names;
  for (const auto& task : tasks) names.insert(task.back());
  EXPECT_EQ(tasks.size(), 4U);
  EXPECT_EQ(names.size(), 4U);
  EXPECT_EQ(tasks[1][1], "model.name=y");
  EXPECT_TRUE(names.contains("run.name=mine-optim.namea_b-model.namex-task0"));
}

TEST(Scheduler, ParsesSqueue) {
  const auto states = parse_squeue(
      "7_0|RUNNING|None\n7_1|PENDING|Resources\n7_2|COMPLETING|None\n8|CANCELLED|None\n9|REQUEUE_HOLD|None\n",
      {"7_0", "7_1", "7_2", "7_3", "8", "9"});
  EXPECT_EQ(states.at("7_0").kind, JobState::running);
  EXPECT_EQ(states.at("7_1").kind, JobState::queued);
  EXPECT_EQ(states.at("7_1").words, "PENDING (Resources)");
  EXPECT_EQ(states.at("7_2").kind, JobState::running);
  EXPECT_EQ(states.at("7_3").kind, JobState::gone);
  EXPECT_EQ(states.at("8").kind, JobState::gone);
  EXPECT_EQ(states.at("9").kind, JobState::queued);
  EXPECT_EQ(parse_squeue("8_0|RUNNING|None\n", {"7_0", "8_0"}).at("7_0").kind, JobState::unknown);
  const auto recorded = base::read_small_file("tests/fixtures/slurm/22.05/squeue.txt", 1 << 20, "squeue");
  EXPECT_EQ(parse_squeue(recorded, {"7_0"}).at("7_0").words, "RUNNING");
}

TEST(Scheduler, TellsWhyItDoesNotAnswer) {
  const auto query = [](const base::Answer& answer) {
    return query_jobs({"slurm"}, {"7"}, [&](const Words&) { return answer; });
  };
  EXPECT_EQ(query({}).trouble, "squeue cannot be started");
  EXPECT_EQ(query({base::Answer::late, -1, "7|RUNN", "", false}).trouble, "squeue timed out");
  EXPECT_EQ(query({base::Answer::left, 1, "", "down\n", true}).trouble, "squeue exited with 1: down");
  EXPECT_EQ(query({base::Answer::left, 1, "", "Invalid job id", true}).states.at("7").kind,
            JobState::unknown);
}

TEST(Scheduler, ParsesQstat) {
  const auto states =
      parse_qstat(base::read_text("tests/fixtures/openpbs-23.06.06/states"),
                  {"101.server", "102.server", "99[1].server", "12.server", "9999.server", "11.server"});
  EXPECT_EQ(states.at("101.server").words,
            "Q (Can Never Run: Insufficient amount of resource: ncpus (R: 99 A: 96 T: 96))");
  EXPECT_EQ(states.at("102.server").words, "H");
  EXPECT_EQ(states.at("99[1].server").kind, JobState::running);
  EXPECT_EQ(states.at("12.server").kind, JobState::gone);
  EXPECT_EQ(states.at("9999.server").kind, JobState::gone);
  EXPECT_EQ(states.size(), 5U);
}

TEST(Scheduler, NamesTasksAndLogsAsEachSchedulerDoes) {
  EXPECT_EQ(task_id({"slurm"}, "7", 3), "7_3");
  EXPECT_EQ(task_id({"pbs"}, "7[].server", 3), "7[3].server");
  EXPECT_EQ(array_of("7[3].server"), "7[].server");
  EXPECT_EQ(array_of("7_3"), "7");
  EXPECT_EQ(log_of({"slurm"}, "mine", "7"), "mine-7.out");
  EXPECT_EQ(log_of({"pbs"}, "a-name-of-eighteen", "7[3].server"), "a-name-of-eighteen.o7.3");
  EXPECT_EQ(cancel_command({"pbs"}, "7[].server"), "qdel $'7[].server'");
  EXPECT_EQ(cancel_command({"slurm", "east"}, "7"), "scancel 7 --clusters=east");
  EXPECT_EQ(show_command({"slurm", "a b"}, "7"), "squeue --jobs=7 $'--clusters=a b'");
  EXPECT_EQ(cancel_command({"slurm"}, "7"), "scancel 7");
}

TEST(HandIn, WaitsForAMuteSchedulerWithinBounds) {
  const test::TempFolder folder;
  const auto sbatch = folder.path() / "sbatch";
  std::ofstream(sbatch) << "#!/bin/sh\nexec sleep 600\n";
  std::filesystem::permissions(sbatch, std::filesystem::perms::owner_all);
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", (folder.path().string() + ":" + path).c_str(), 1);
  const auto error = test::error_from<Error>([] {
    submit({.argv = {"sbatch", "script"}, .apart = true}, std::chrono::milliseconds(300));
  });
  EXPECT_TRUE(test::has(error.what(), "sbatch timed out after 1 s"));
  ::setenv("PATH", path.c_str(), 1);
}

TEST(Answer, ThatIsLateEndsWithItsWholeGroup) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const base::Descriptor read(ends[0]);
  base::Descriptor write(ends[1]);
  ASSERT_EQ(::fcntl(write.number(), F_SETFD, 0), 0);  // all that it starts hold it
  const auto answer =
      base::ask({.argv = {"sh", "-c", "echo here; sleep 600; echo"}, .apart = true}, std::chrono::seconds(1));
  EXPECT_EQ(answer.end, base::Answer::late);
  EXPECT_EQ(answer.output, "here\n");
  write.close();
  pollfd left{read.number(), POLLIN, 0};
  EXPECT_EQ(::poll(&left, 1, 120'000), 1);  // nobody holds it any more
}

TEST(Answer, IsWholeToItsEndOrSaysSo) {
  const auto of = [](const char* text) { return base::ask({"sh", "-c", text}, std::chrono::seconds(60)); };
  const auto long_one = of("head -c 500000 /dev/zero; head -c 2000000 /dev/zero >&2");
  EXPECT_TRUE(long_one.good() && long_one.whole);
  EXPECT_EQ(long_one.output.size(), 500'000U);
  const auto too_long = of("head -c 2000000 /dev/zero");
  EXPECT_TRUE(too_long.good() && !too_long.whole);
  const auto held = of("echo here; sleep 20 2>&- & ");
  EXPECT_TRUE(held.good() && !held.whole);
  EXPECT_EQ(held.output, "here\n");
  EXPECT_EQ(base::ask({"/no/such/program"}, std::chrono::seconds(5)).end, base::Answer::not_started);
}

}  // namespace
}  // namespace lockstep::cluster
