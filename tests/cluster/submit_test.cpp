// What a submitted job is made of and what is heard of it: sweeps, records, the schedulers' answers, a
// growing log.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <set>
#include <thread>

#include "lockstep/base/descriptor.h"
#include "lockstep/base/error.h"
#include "lockstep/base/program.h"
#include "temp_folder.h"
#include "tools/cluster/scheduler.h"
#include "tools/cluster/sweep.h"
#include "tools/cluster/watch.h"

namespace lockstep::cluster {
namespace {

using Words = std::vector<std::string>;

TEST(Sweep, PartsValuesAtCommasThatArePlain) {
  EXPECT_EQ(parse_swept("a.b=[0.8, 0.9],[1, 2],\"x,y\",it's").values,
            (Words{"[0.8, 0.9]", "[1, 2]", "\"x,y\"", "it's"}));
  EXPECT_EQ(parse_swept("run.seed=-1..2").values, (Words{"-1", "0", "1", "2"}));
  EXPECT_EQ(parse_swept("data.root=../a,b=c").values, (Words{"../a", "b=c"}));
}

TEST(Sweep, RefusesRangesOfAnySize) {
  EXPECT_THROW(parse_swept("run.seed=-9223372036854775808..9223372036854775807"), InputError);
  EXPECT_EQ(parse_swept("run.seed=9223372036854775806..9223372036854775807").values.size(), 2U);
}

TEST(Sweep, EveryCombinationHasANameOfItsOwn) {
  const auto tasks = tasks_of({{"optim.name", {"a/b", "a b"}}, {"model.name", {"x", "y"}}}, "mine");
  std::set<std::string> names;
  for (const auto& task : tasks) names.insert(task.back());
  EXPECT_EQ(tasks.size(), 4U);
  EXPECT_EQ(names.size(), 4U);
  EXPECT_EQ(tasks[1][1], "model.name=y");
  EXPECT_TRUE(names.contains("run.name=mine-optim.namea_b-model.namex-task0"));
}

TEST(Record, FollowsAJobThroughItsRestarts) {
  const auto running =
      read_record("begin 7\nfile 7 /a b/.run\nend 7");  // its last line is still being written
  EXPECT_TRUE(running.began && !running.status && running.run_file == "/a b/.run");
  EXPECT_TRUE(read_record("begin 7\nagain 7\n").again);
  const auto again = read_record("begin 7\nagain 7\nbegin 7\nend 7 75 /a b/runs/x\n");
  EXPECT_EQ(again.restarts, 1);
  EXPECT_EQ(again.status, 75);
  EXPECT_EQ(again.folder, "/a b/runs/x");
}

TEST(Record, TakesTheJobThatTookAnothersPlace) {
  const auto replaced = read_record("begin 7.x\nnext 7.x 8.x\nend 7.x 75 \nbegin 7.x\nend 7.x 75 \n");
  EXPECT_EQ(replaced.job, "8.x");
  EXPECT_TRUE(replaced.replaced && replaced.again && !replaced.status);
  EXPECT_EQ(read_record("begin 7.x\nnext 7.x 8.x\nend 7.x 75 \nbegin 8.x\nend 8.x 0 /r\n").status, 0);
}

TEST(Record, OfGarbageSaysNothing) {
  for (const auto* text : {"", "\n\n", "begin", "end 7 fast /x\n", "what ever\n\x01\n"})
    EXPECT_FALSE(read_record(text).status) << text;
}

TEST(Scheduler, ReadsWhatSqueueTells) {
  const auto seen =
      read_squeue("7_0|RUNNING|None\n7_1|PENDING|Resources\n7_2|COMPLETING|None\n9|PENDING|None\n",
                  {"7_0", "7_1", "7_2", "7_3"});
  EXPECT_EQ(seen.at("7_0").state, Seen::running);
  EXPECT_EQ(seen.at("7_1").state, Seen::queued);
  EXPECT_EQ(seen.at("7_1").words, "PENDING (Resources)");
  EXPECT_EQ(seen.at("7_2").state, Seen::running);
  EXPECT_EQ(seen.at("7_3").state, Seen::gone);
  EXPECT_EQ(read_squeue("7_0|COMPLETED|None\n", {"7_3"}).at("7_3").state, Seen::gone);
  EXPECT_EQ(read_squeue("", {"7_3"}).at("7_3").state, Seen::unknown);
  EXPECT_EQ(read_squeue("8_0|RUNNING|None\n", {"7_0", "8_0"}).at("7_0").state, Seen::unknown);
}

TEST(Scheduler, ReadsWhatSqueueTellsOfTheEnd) {
  const auto seen =
      read_squeue("7|CANCELLED|None\n8|COMPLETING|None\n9|REQUEUE_HOLD|None\n", {"7", "8", "9"});
  EXPECT_EQ(seen.at("7").state, Seen::gone);
  EXPECT_EQ(seen.at("7").words, "CANCELLED");
  EXPECT_EQ(seen.at("8").state, Seen::running);
  EXPECT_EQ(seen.at("9").state, Seen::queued);
}

TEST(Scheduler, ReadsWhatSacctTells) {
  const auto seen = read_sacct("7_0|CANCELLED by 1000\n7_1|RUNNING\nnonsense\n8|OUT_OF_MEMORY\n");
  EXPECT_EQ(seen.at("7_0").state, Seen::gone);
  EXPECT_EQ(seen.at("7_0").words, "CANCELLED by 1000");
  EXPECT_EQ(seen.at("7_1").state, Seen::unknown);
  EXPECT_EQ(seen.at("8").state, Seen::gone);
  EXPECT_EQ(seen.size(), 3U);
}

TEST(Scheduler, ReadsWhatQstatTells) {
  EXPECT_EQ(read_qstat("Job Id: 7.x\n    job_state = Q\n    comment = Not Running: no room\n").words,
            "Q (Not Running: no room)");
  EXPECT_EQ(read_qstat("    job_state = R\n").state, Seen::running);
  EXPECT_EQ(read_qstat("    job_state = F\n").state, Seen::gone);
  EXPECT_EQ(read_qstat("    job_state = F\n    Exit_status = 271\n").words, "finished with status 271");
}

TEST(Scheduler, NamesTasksAndLogsAsEachSchedulerDoes) {
  EXPECT_EQ(task_id("slurm", "7", 3), "7_3");
  EXPECT_EQ(task_id("pbs", "7[].server", 3), "7[3].server");
  EXPECT_EQ(array_of("7[3].server"), "7[].server");
  EXPECT_EQ(array_of("7_3"), "7");
  EXPECT_EQ(log_of("slurm", "mine", "7"), "mine-7.out");
  EXPECT_EQ(log_of("pbs", "a-name-of-eighteen", "7[3].server"), "a-name-of-eighteen.o7.3");
  EXPECT_EQ(how_to_cancel({"pbs"}, "7[].server"), "qdel '7[].server'");
}

TEST(Scheduler, NamesTheClusterWhereThereAreSeveral) {
  EXPECT_EQ(how_to_cancel({"slurm", "east"}, "7"), "scancel --clusters=east 7");
  EXPECT_EQ(how_to_look({"slurm", "a b"}, "7"), "squeue --clusters='a b' --jobs=7");
  EXPECT_EQ(how_to_cancel({"slurm"}, "7"), "scancel 7");
}

TEST(JobWatch, OfAJobThatNobodyKnowsIsPatient) {
  const test::TempFolder folder;
  const auto record = folder.path() / "r";
  JobWatch watch("7", record, {.record = {}, .unknown = std::chrono::hours(1)});
  watch.look();
  watch.hear({Seen::unknown, "unknown to squeue"});
  EXPECT_EQ(watch.look().phase, Standing::missing);
  std::ofstream(record) << "begin 7\n";
  watch.look();
  watch.hear({Seen::unknown, "unknown to squeue"});
  EXPECT_EQ(watch.look().phase, Standing::missing);
  watch.hear({Seen::running, "RUNNING"});
  EXPECT_EQ(watch.look().phase, Standing::running);
  std::ofstream(record, std::ios::app) << "end 7 0\n";
  EXPECT_EQ(watch.look().phase, Standing::ending);
  watch.hear({Seen::unknown, "unknown to squeue"});
  EXPECT_EQ(watch.look().phase, Standing::over);
  EXPECT_FALSE(watch.standing().lost);
}

TEST(JobWatch, OfAJobThatNobodyKnowsEndsSomeTime) {
  const test::TempFolder folder;
  JobWatch watch("7", folder.path() / "r", {.record = std::chrono::hours(1), .unknown = {}});
  watch.look();
  watch.hear({Seen::unknown, "unknown to squeue"});
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(watch.look().phase, Standing::over);
  EXPECT_TRUE(watch.standing().lost);
  EXPECT_EQ(watch.standing().words, "unknown to squeue");
}

// Whatever a script ended with, the same job may be started again: the scheduler knows.
class WatchOfAnEnd : public ::testing::TestWithParam<const char*> {};

TEST_P(WatchOfAnEnd, WaitsForTheSchedulersWord) {
  const test::TempFolder folder;
  const auto record = folder.path() / "r";
  JobWatch watch("7", record);
  std::ofstream(record) << "begin 7\n";
  watch.look();
  watch.hear({Seen::gone, "said before the record's end"});
  std::ofstream(record, std::ios::app) << "end 7 " << GetParam() << "\n";
  EXPECT_EQ(watch.look().phase, Standing::ending);
  EXPECT_TRUE(watch.waits_for_word());
  watch.hear({Seen::running, "COMPLETING"});
  EXPECT_EQ(watch.look().phase, Standing::ending);
  EXPECT_FALSE(watch.waits_for_word());
  watch.hear({Seen::queued, "PENDING (BeginTime)"});
  EXPECT_EQ(watch.look().phase, Standing::again);
  std::ofstream(record, std::ios::app) << "begin 7\n";
  EXPECT_EQ(watch.look().phase, Standing::running);
  std::ofstream(record, std::ios::app) << "end 7 0\n";
  EXPECT_EQ(watch.look().phase, Standing::ending);
  watch.hear({Seen::gone, "COMPLETED"});
  EXPECT_EQ(watch.look().phase, Standing::over);
  EXPECT_EQ(watch.standing().status, 0);
  EXPECT_EQ(watch.standing().restarts, 1);
}

INSTANTIATE_TEST_SUITE_P(, WatchOfAnEnd, ::testing::Values("75", "1", "143", "0"));

TEST(JobWatch, BelievesTheRecordWhereTheSchedulerIsSilent) {
  const test::TempFolder folder;
  std::ofstream(folder.path() / "r") << "begin 7\nend 7 1\n";
  JobWatch watch("7", folder.path() / "r", {.silent = {}});
  watch.look();
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  EXPECT_EQ(watch.look().phase, Standing::over);
}

TEST(Scheduler, TakesTheQsubThatCallsSbatchForSlurms) {
  const test::TempFolder folder;
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", folder.path().c_str(), 1);
  ::setenv("PBS_EXEC", "/nowhere", 1);
  for (const auto& [name, text] :
       {std::pair("sbatch", "#!/bin/sh\n"), {"qsub", "#!/bin/sh\nexec \"${0%/*}/sbatch\"\n"}}) {
    std::ofstream(folder.path() / name) << text;
    std::filesystem::permissions(folder.path() / name, std::filesystem::perms::owner_all);
  }
  EXPECT_EQ(guess_scheduler(), "slurm");
  std::ofstream(folder.path() / "qsub") << "#!/bin/sh\n";
  EXPECT_THROW(guess_scheduler(), InputError);
  ::setenv("PATH", path.c_str(), 1);
  ::unsetenv("PBS_EXEC");
}

TEST(HandIn, WaitsForAMuteSchedulerWithinBounds) {
  const test::TempFolder folder;
  const auto sbatch = folder.path() / "sbatch";
  std::ofstream(sbatch) << "#!/bin/sh\nexec sleep 600\n";
  std::filesystem::permissions(sbatch, std::filesystem::perms::owner_all);
  const std::string path = std::getenv("PATH");
  ::setenv("PATH", (folder.path().string() + ":" + path).c_str(), 1);
  try {
    submit({{"sbatch", "script"}, {}}, std::chrono::milliseconds(300));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("sbatch has not answered within 1 s"), std::string::npos)
        << error.what();
  }
  ::setenv("PATH", path.c_str(), 1);
}

TEST(LogTail, PassesOnWholeLinesAsTheyCome) {
  const test::TempFolder scratch;
  const auto path = scratch.path() / "log";
  LogTail tail(path);
  Words lines;
  const auto take = [&](bool at_end = false) {
    tail.pass_on([&](const std::string& line) { lines.push_back(line); }, at_end);
  };
  take();
  std::ofstream(path, std::ios::app) << "one\ntw";
  take();
  EXPECT_EQ(lines, (Words{"one"}));
  std::ofstream(path, std::ios::app) << "o\nrest";
  take();
  take(true);
  EXPECT_EQ(lines, (Words{"one", "two", "rest"}));
  std::ofstream(path) << "new\n";  // shorter than what was read
  take();
  EXPECT_EQ(lines.back(), "new");
}

TEST(Answer, ComesFromAnEnvironmentWithoutWhatIsTakenOut) {
  ::setenv("TEST_ANSWER_A", "1", 1);
  ::setenv("TEST_ANSWER_B", "2", 1);
  ::setenv("TEST_OTHER", "3", 1);
  const auto said = [](const Words& without) {
    return base::ask(
               {.argv = {"sh", "-c", "echo $TEST_ANSWER_A $TEST_ANSWER_B $TEST_OTHER"}, .without = without},
               std::chrono::seconds(20))
        .output;
  };
  EXPECT_EQ(said({}), "1 2 3\n");
  EXPECT_EQ(said({"TEST_ANSWER_A"}), "2 3\n");
  EXPECT_EQ(said({"TEST_ANSWER_*"}), "3\n");
  EXPECT_EQ(said({"TEST_ANSWER", "TEST"}), "1 2 3\n");
}

TEST(Answer, IsNotWaitedForForEver) {
  const auto begin = std::chrono::steady_clock::now();
  const auto answer = base::ask({"sh", "-c", "echo here; exec sleep 600"}, std::chrono::seconds(2));
  EXPECT_EQ(answer.end, base::Answer::late);
  EXPECT_EQ(answer.output, "here\n");
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::minutes(2));
  EXPECT_EQ(base::ask({"/no/such/program"}, std::chrono::seconds(5)).end, base::Answer::not_started);
}

TEST(Answer, ThatIsLateEndsWithItsWholeGroup) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  const base::Descriptor read(ends[0]);
  base::Descriptor write(ends[1]);
  ASSERT_EQ(::fcntl(write.number(), F_SETFD, 0), 0);  // all that it starts hold it
  const auto answer =
      base::ask({.argv = {"sh", "-c", "sleep 600; echo"}, .apart = true}, std::chrono::milliseconds(500));
  EXPECT_EQ(answer.end, base::Answer::late);
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
  EXPECT_TRUE(held.good() && held.whole);
  EXPECT_EQ(held.output, "here\n");
}

}  // namespace
}  // namespace lockstep::cluster
