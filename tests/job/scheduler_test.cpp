#include "tools/job/job.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <iostream>
#include <optional>
#include <set>
#include <tuple>

#include "lockstep/base/files/file.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/scheduler.h"
#include "refusal.h"
#include "temp_folder.h"

namespace lockstep::job {
namespace {

using Words = std::vector<std::string>;

// Answers by the beginning of the command, and notes what was run.
struct Fake {
  std::map<std::string, std::string> answers;  // "!" before a text: the command fails with it
  Words run = {};

  RunCommand command() {
    return [this](const Words& words) {
      const auto text = base::join(words, " ");
      run.push_back(text);
      base::Answer answer{.end = base::Answer::left, .status = 0, .output = {}, .errors = {}, .whole = true};
      for (const auto& [begin, said] : answers) {
        if (text.find(begin) == std::string::npos) continue;
        answer.status = said.starts_with("!") ? 1 : 0;
        (said.starts_with("!") ? answer.errors : answer.output) =
            said.starts_with("!") ? said.substr(1) : said;
      }
      return answer;
    };
  }
};

// The last task of an array: the answer has one paragraph for each task.
std::string job_text(const std::string& state, int restarts,
                     const std::string& more = "Reason=None PreemptTime=None") {
  return "JobId=6 ArrayJobId=7 ArrayTaskId=0 JobName=x\n   JobState=COMPLETING Reason=None\n   Restarts=9 "
         "PreemptTime=Unknown\n\n"
         "JobId=7 ArrayJobId=7 ArrayTaskId=1 JobName=x JobState=odd\n   JobState=" +
         state + "\n   Restarts=" + std::to_string(restarts) + " " + more + "\n";
}

// tests/fixtures/slurm/README.md says which of them were recorded.
TEST(Slurm, ReadsTheAnswersOfEachVersion) {
  const auto text = [](const std::string& file) {
    return base::read_small_file("tests/fixtures/slurm/" + file + ".txt", 1 << 20, "the answer");
  };
  for (const std::string version : {"21.08", "22.05", "23.11", "24.05"}) {
    Environment environment = {
        {"SLURM_JOB_ID", "7"}, {"SLURM_ARRAY_TASK_ID", "1"}, {"SLURM_SUBMIT_DIR", "/home/user/a b"}};
    Fake fake{{{"show job", text(version + "/job")},
               {"show config", text("22.05/config")},
               {"sacct", text("22.05/sacct")}}};
    const auto slurm = make_job(environment, fake.command());
    EXPECT_EQ(slurm->times().running, 5) << version;
    EXPECT_TRUE(slurm->is_warned_early());
    EXPECT_EQ(slurm->fate(SIGTERM), Fate::ended) << version;
    EXPECT_EQ(slurm->daemon_port(), 16818);
    const auto line = slurm->submit_line({"c d"});
    EXPECT_TRUE(line.starts_with("cd $'/home/user/a b' && sbatch --array=1 ")) << line;
  }
}

TEST(Slurm, TellsARequeueFromACancel) {
  for (const auto& [text, fate] :
       {std::pair{job_text("COMPLETING", 1), Fate::restarts},
        {job_text("COMPLETING", 0), Fate::cancelled},
        {job_text("RUNNING", 0), Fate::ended},
        {job_text("COMPLETING", 0, "Reason=TimeLimit"), Fate::ended},
        {job_text("COMPLETING", 0, "Reason=None PreemptTime=2026-01-01T00:00:00"), Fate::ended},
        {job_text("", 0), Fate::unknown}}) {
    Environment environment = {{"SLURM_JOB_ID", "7"}};
    Fake fake{{{"scontrol show job", text}}};
    EXPECT_EQ(make_job(environment, fake.command())->fate(SIGTERM), fate) << text;
  }
}

TEST(Slurm, KnowsWhatTheJobCostAndHowToSubmitItAgain) {
  Environment environment = {{"SLURM_JOB_ID", "7"}, {"SLURM_SUBMIT_DIR", "/a b"}};
  const std::string times = "RunTime=01:00:05 EligibleTime=2026-03-01T23:59:50 StartTime=2026-03-02T00:00:10";
  Fake fake{{{"scontrol show job", job_text("RUNNING", 0, times + "\n   Command=/a b/x.sh c d")},
             {"ConsumedEnergyRaw", "7|900\n7.batch|100\n7.0|18446744073709551614\n7.1|\n7.2|20\n"}}};
  const auto slurm = make_job(environment, fake.command());
  EXPECT_EQ(slurm->times().running, 3605);
  EXPECT_EQ(slurm->times().queued, 20);
  EXPECT_EQ(slurm->joules(), 120);
  EXPECT_EQ(slurm->submit_line({"c d"}), "cd $'/a b' && sbatch $'/a b/x.sh' $'c d'");
  EXPECT_EQ(slurm->submit_line({"other"}), "cd $'/a b' && sbatch $'/a b/x.sh c d'");
  fake.answers["SubmitLine"] =
      "sbatch -N2 --export=TOKEN=x,https_proxy=http://me:pw@h:1,SET=a=b, pw=x x.sh c d\n";
  environment["SLURM_ARRAY_TASK_ID"] = "3";
  EXPECT_EQ(
      slurm->submit_line({"c d"}),
      "cd $'/a b' && sbatch --array=3 -N2 --export=TOKEN=...,https_proxy=...,SET=a=b, pw=... x.sh $'c d'");
  fake.answers["SubmitLine"] = "sbatch -a 0-7%2 x.sh\nsbatch -a 0-7%2 x.sh\n";
  EXPECT_EQ(slurm->submit_line({}), "cd $'/a b' && sbatch --array=3 x.sh");
  fake.answers["scontrol show job"] = "!Unable to contact slurm controller";
  EXPECT_EQ(slurm->submit_line({}), "cd $'/a b' && sbatch --array=3 x.sh");
}

// The id of an array's last task is that of the whole array.
TEST(Slurm, LeavesTheOtherTasksOfAnArrayAlone) {
  Environment environment = {
      {"SLURM_JOB_ID", "7"}, {"SLURM_ARRAY_JOB_ID", "7"}, {"SLURM_ARRAY_TASK_ID", "1"}};
  Fake fake{{{"steps --jobs=7_1", "7_1.0 lockstep-ranks\n7_1.1 my own step\n7_1.2 orted\n"},
             {"scontrol show job", job_text("RUNNING", 0)}}};
  const auto slurm = make_job(environment, fake.command());
  EXPECT_EQ(slurm->continue_run(), "");
  EXPECT_EQ(fake.run.back(), "scontrol requeue 7_1");
  slurm->keep_only({}, {});
  EXPECT_EQ(fake.run.back(), "scancel 7_1.0 7_1.2");
  slurm->joules();
  EXPECT_TRUE(fake.run.back().starts_with("sacct --jobs=7_1 "));
  fake.answers["scontrol requeue"] = "!disabled";
  EXPECT_EQ(slurm->continue_run(), std::nullopt);
  fake.answers["scontrol show job"] = "JobId=7 HetJobId=7 JobName=x\n   JobState=RUNNING\n";
  slurm->continue_run();
  EXPECT_EQ(std::count(fake.run.begin(), fake.run.end(), "scontrol requeue 7"), 1);
  fake.answers["scontrol show job"] = "!Slurm is busy";
  slurm->joules();
  EXPECT_TRUE(fake.run.back().starts_with("sacct --jobs=7_1 "));
}

TEST(Slurm, WarnsAShortJobAtItsBegin) {
  for (const auto& [limit, is_early] :
       {std::pair{"00:03:00", true}, {"00:03:01", false}, {"1-00:00:00", false}, {"UNLIMITED", false}}) {
    Environment environment = {{"SLURM_JOB_ID", "7"}};
    Fake fake{{{"scontrol show job", job_text("RUNNING", 0, std::string("TimeLimit=") + limit)}}};
    EXPECT_EQ(make_job(environment, fake.command())->is_warned_early(), is_early) << limit;
  }
}

TEST(Slurm, GivesUpItsLostNodes) {
  Environment environment = {{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "6"}, {"SLURM_MEM_PER_CPU", "1000"}};
  Fake fake{{{"squeue --noheader --steps", "7.0 lockstep-ranks\n7.batch batch\n"}}};
  Allocation left;
  left.nodes = {{"n1", 4, 3, 0}, {"n3", 4, 1, 0}};
  EXPECT_EQ(make_job(environment, fake.command())->keep_only(left, {"n2"}), "");
  EXPECT_EQ(environment["SLURM_JOB_NODELIST"] + " " + environment["SLURM_NNODES"] + " " +
                environment["SLURM_TASKS_PER_NODE"] + " " + environment["SLURM_JOB_CPUS_PER_NODE"] + " " +
                environment["SLURM_NTASKS"] + " " + environment["SLURM_MEM_PER_NODE"] +
                environment["SLURM_MEM_PER_CPU"],
            "n1,n3 2 3,1 4,4 4 0");
  EXPECT_EQ(std::count(fake.run.begin(), fake.run.end(), "scancel 7.0"), 1);
  EXPECT_TRUE(fake.run.back().ends_with("scontrol update JobId=7 NodeList=n1,n3"));
}

base::Answer refused(const std::string& errors) {
  return {base::Answer::left, 1, "", errors, true};
}
const base::Answer kLate{base::Answer::late, -1, "", "", true};

TEST(Slurm, IsAskedAgainWhereItDoesNotAnswer) {
  for (const auto& first : {kLate, refused("DB index is being set, try again in a bit"),
                            refused("Unable to contact slurm controller")}) {
    Environment environment = {{"SLURM_JOB_ID", "7"}};
    Fake fake{{{"scontrol show job", job_text("RUNNING", 1)}, {"show config", "SlurmdPort = 5\n"}}};
    std::map<std::string, int> times;
    const auto run = [&, command = fake.command()](const Words& words) {
      return ++times[words[0] == "env" ? "update" : words[words[1] == "show" ? 2 : 1]] == 1 ? first
                                                                                            : command(words);
    };
    const auto slurm = make_job(environment, run, std::chrono::milliseconds(1));
    EXPECT_EQ(slurm->fate(0), Fate::restarts);
    fake.answers["scontrol show job"] = job_text("RUNNING", 0);
    EXPECT_EQ(slurm->continue_run(), "");
    EXPECT_EQ(slurm->keep_only({}, {"n2"}), "");
    EXPECT_EQ(slurm->daemon_port(), 5);
    for (const char* name : {"job", "requeue", "update"}) EXPECT_GE(times[name], 2) << name;
  }
}

TEST(Slurm, LeavesTheJobAsItIsWithoutAnAnswer) {
  for (const auto& answer : {refused("Invalid job id specified"), kLate, base::Answer{},
                             base::Answer{base::Answer::left, 0, "JobId=7 JobName=x\n   JobSta", "", true}}) {
    Environment environment = {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "n[1-2]"}};
    int asked = 0;
    const auto slurm = make_job(
        environment, [&](const Words&) { return ++asked, answer; }, std::chrono::milliseconds(1));
    EXPECT_EQ(slurm->allocation().nodes.size(), 1U);
    EXPECT_EQ(slurm->times().running + slurm->times().queued + slurm->daemon_port() + slurm->joules(), 0);
    EXPECT_EQ(slurm->fate(SIGTERM), Fate::unknown);
    EXPECT_FALSE(slurm->is_warned_early());
    EXPECT_LE(asked, 50);  // all tries together
    if (answer.good()) continue;
    EXPECT_EQ(slurm->submit_line({}), "");
    EXPECT_FALSE(slurm->continue_run() || slurm->answers());
    EXPECT_TRUE(slurm->keep_only({}, {"n2"}).starts_with("Slurm did not release n2"));
  }
}

TEST(Pbs, TellsARequeueFromACancel) {
  const test::TempFolder folder;
  Environment environment = {{"PBS_JOBID", "7.x"}, {"PBS_NODEFILE", folder.write("nodes", "a\n")}};
  Fake fake{{{"qstat", "Job Id: 7.x\n    run_count = 2\n"}}};
  const auto pbs = make_job(environment, fake.command());
  pbs->allocation();
  EXPECT_EQ(pbs->fate(SIGUSR1), Fate::ended);
  EXPECT_EQ(pbs->restarts(), 1);
  for (const auto& [said, fate] :
       {std::pair{"", Fate::unknown},
        {"substate = 60", Fate::restarts},
        {"substate = 42\n    comment = Job run on (n1:ncpus=1) and terminated by \n\tme@server",
         Fate::cancelled},
        {"substate = 42\n    Rerunable = False", Fate::cancelled},
        {"substate = 42\n    Rerunable = True", Fate::perhaps_restarts}}) {
    fake.answers["qstat"] = *said ? std::string("Job Id: 7.x\n    ") + said + "\n" : "";
    EXPECT_EQ(pbs->fate(SIGTERM), fate) << said;
  }
}

TEST(Pbs, KeepsItsNodeFileWhenANodeIsLost) {  // pbs_tmrsh counts its lines
  const test::TempFolder folder;
  Environment environment = {{"PBS_JOBID", "7.x"}, {"PBS_NODEFILE", folder.write("nodes", "a\nb\nc\n")}};
  const auto kept = environment["PBS_NODEFILE"];
  Allocation left;
  left.nodes = {{"a", 1, 1, 0}, {"c", 1, 2, 0}};
  Fake fake;
  const auto pbs = make_job(environment, fake.command());
  pbs->keep_only(left, {"b"});
  EXPECT_EQ(environment["PBS_NODEFILE"], kept);
  EXPECT_EQ(base::read_text(environment["LOCKSTEP_NODEFILE"]), "a\nc\nc\n");
}

TEST(Pbs, KnowsWhatTheJobCostAndWhyItWasKilled) {
  const test::TempFolder folder;
  Environment environment = {{"PBS_JOBID", "7.x"}, {"PBS_NODEFILE", folder.write("nodes", "a\n")}};
  Fake fake{{{"qstat",
              "Job Id: 7.x\n    etime = Sun Mar  1 23:59:50 2026\n    stime = Mon Mar  2 00:00:10 2026\n"}}};
  ::testing::internal::CaptureStderr();  // the job's log is a file
  const auto killed = [](const char* text) { std::cerr << "=>> PBS: job killed: " << text << std::endl; };
  killed("walltime 36 exceeded limit 30");  // the job before
  const auto pbs = make_job(environment, fake.command());
  pbs->allocation();
  const auto queued = pbs->times().queued;
  fake.answers["qstat"] = "";
  std::vector fates = {pbs->fate(SIGTERM)};
  killed("mem 9kb exceeded limit 8kb");
  for (const int stop : {0, SIGTERM}) fates.push_back(pbs->fate(stop));
  const auto why = pbs->memory_exceeded();
  killed("walltime 36 exceeded limit 30");
  fates.push_back(pbs->fate(SIGTERM));
  ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(queued, 20);
  EXPECT_EQ(why, "PBS ended the job: mem 9kb exceeded limit 8kb");
  EXPECT_EQ(fates, (std::vector{Fate::unknown, Fate::cancelled, Fate::cancelled, Fate::ended}));
}

// Sums over chunks beside select, the queue behind a route, and a name that PBS made are refused by qsub.
TEST(Pbs, AsksQsubForWhatTheJobHad) {
  const auto record = launch::qstat_fields(
      "Job Id: 1.x\n    Job_Name = my script, 2.pbs\n    queue = behind\n    Keep_Files = n\n"
      "    Output_Path = login:/a/my script, 2.pbs.o1\n    Rerunable = False\n    Resource_List.mem = 4gb\n"
      "    Resource_List.ncpus = 8\n    Resource_List.ngpus = 2\n    Resource_List.nodect = 2\n"
      "    Resource_List.nodes = 2:ppn=4\n    Resource_List.place = scatter:excl\n"
      "    Resource_List.select = 2:ncpus=4:mem=2gb\n    Resource_List.storage = gdata/a+scratch/b\n"
      "    project = _pbs_project_default\n    schedselect = 2:ncpus=4:mem=2gb:ngpus=1\n");
  EXPECT_EQ(base::join(qsub_options(record, {{"PBS_O_QUEUE", "front"}}), "|"),
            "-N|my_script__2.pbs|-k|n|-r|n|-q|front|-l|place=scatter:excl|-l|select=2:ncpus=4:mem=2gb|-l|"
            "storage=gdata/a+scratch/b|-o|/a");
  const auto recorded = launch::qstat_fields(base::read_text("tests/fixtures/openpbs-23.06.06/running"));
  EXPECT_EQ(base::join(qsub_options(recorded, {{"PBS_O_WORKDIR", "/home/user/work"}}), "|"),
            "-N|lockstep|-A|acct|-m|n|-M|a@b|-j|oe|-k|n|-p|0|-S|/bin/bash|-W|group_list=me|-W|umask=27|-W|"
            "stageout=a@node1:/tmp/b|-W|tolerate_node_failures=all|-r|n|-l|place=scatter|-l|"
            "select=2:ncpus=2:mpiprocs=2:mem=1gb|-l|walltime=00:01:00");
}

// Each command fails once, as OpenPBS 23.06 does while its server restarts.
TEST(Pbs, ContinuesTheRunWhenItsServerIsBack) {
  const test::TempFolder folder;
  Environment environment = {{"PBS_JOBID", "100.server"},
                             {"PBS_NODEFILE", folder.write("nodes", "node1\n")},
                             {"PBS_O_WORKDIR", folder.path().string()},
                             {"LOCKSTEP_SCRIPT", folder.write("my job", "true\n")},
                             {"SET", "a=1 b.c=2"},
                             {"TOKEN", "x y"}};
  std::set<std::string> asked;
  std::string script, more;
  const auto run = [&](const Words& words) {
    const auto command = words[0] == "env" ? words[3] : words[0];
    if (words.back() == "silent") return base::Answer();
    if (command == "qsub" && asked.contains("slow")) return kLate;
    if (command == "qsub") script = base::read_text(words.back());
    base::Answer answer{.end = base::Answer::left, .status = 162, .output = {}, .errors = {}, .whole = true};
    if (asked.insert(command).second) {
      answer.errors = "Connection refused\n" + command + ": cannot connect to server server (errno=15010)\n";
      return answer;
    }
    answer.status = 0;
    answer.output = command == "qsub" ? "101.server\n"
                                      : "Job Id: 100.server\n    run_count = 2\n"
                                        "    Submit_arguments = -v TOKEN=x y,SET=a=1 b.c=2 my job\n" +
                                            more;
    return answer;
  };
  const auto pbs = make_job(environment, run, std::chrono::milliseconds(20));
  pbs->allocation();
  EXPECT_EQ(pbs->restarts(), 1);
  pbs->keep_only({}, {"node2"});
  EXPECT_EQ(pbs->continue_run(), "101.server");
  EXPECT_FALSE(test::has(script, environment.at("LOCKSTEP_NODEFILE"))) << "it is this job's";
  const auto line = "cd " + folder.path().string() + " && qsub -v TOKEN=...,SET=$'a=1 b.c=2' my job";
  EXPECT_TRUE(test::has(script, "export LOCKSTEP_SUBMITTED=" + cluster::quoted(line))) << script;
  environment["LOCKSTEP_RESTART"] = "1";
  environment["LOCKSTEP_SUBMITTED"] = line;
  EXPECT_EQ(pbs->submit_line({}), line);
  environment["PBS_ARRAY_ID"] = "100[].server";  // qsub -J 0-9%2
  EXPECT_EQ(pbs->continue_run(), "101.server");
  more = "    max_run_subjobs = 2\n";
  EXPECT_EQ(pbs->continue_run(), std::nullopt);
  more = "";
  environment["PBS_ARRAY_ID"] = "silent";
  EXPECT_EQ(pbs->continue_run(), std::nullopt);
  environment.erase("PBS_ARRAY_ID");
  asked.insert("slow");
  EXPECT_EQ(pbs->continue_run(), kPerhaps);
}

TEST(Pbs, PutsSettingsBeforeAScriptsFirstCommand) {
  const auto once = with_settings("#!/bin/bash\n#PBS -N x\n\ncd \"$PBS_O_WORKDIR\"\n", {{"A", "it's"}});
  EXPECT_TRUE(once.starts_with("#!/bin/bash\n# lockstep"));
  const auto twice = with_settings(once, {{"B", "2"}});
  EXPECT_EQ(twice.find("export A"), std::string::npos) << twice;
  EXPECT_LT(twice.find("export B=2\n"), twice.find("cd ")) << twice;
}

// ---- launchers ----

class Launchers : public ::testing::Test {
 protected:
  Launchers() {
    for (const char* name : {"srun", "mpirun", "mpiexec"}) add(name);
    const char* path = std::getenv("PATH");
    path_ = path ? path : "";
    ::setenv("PATH", (folder_.path().string() + ":" + path_).c_str(), 1);
  }
  ~Launchers() override { ::setenv("PATH", path_.c_str(), 1); }

  void add(const char* name) const {
    std::ofstream(folder_ / name) << "#!/bin/sh\n";
    std::filesystem::permissions(folder_ / name, std::filesystem::perms::owner_all);
  }

  std::string words(bool slurm, const std::string& version, int64_t ranks_per_node, int relaunches = 0) {
    environment_[slurm ? "SLURM_JOB_ID" : "PBS_JOBID"] = "7";
    environment_["PBS_NODEFILE"] = "nodes";
    fake_.answers["--version"] = version;
    const auto job = make_job(environment_, fake_.command());
    Allocation given;
    given.nodes = {{"n1", 8, 2, 0}, {"n2", 8, 2, 0}};
    given.components = components_;
    const Layout layout{nodes_, 4, ranks_per_node, cores_per_rank_, 8, 8};
    return base::join(choose_launcher({*job, given, layout, true, relaunches, "agent", own_cores_},
                                      environment_, fake_.command()),
                      " ");
  }

  test::TempFolder folder_;
  std::string path_;
  Environment environment_;
  int64_t components_ = 1, own_cores_ = 8, nodes_ = 2, cores_per_rank_ = 4;
  Fake fake_;
};

TEST_F(Launchers, SrunGetsTheLayoutAndTheNodesThatAreLeft) {
  EXPECT_EQ(words(true, "", 2),
            "srun --job-name=lockstep-ranks --kill-on-bad-exit=1 --cpus-per-task=4 --ntasks=4 "
            "--ntasks-per-node=2");
  EXPECT_EQ(environment_["SLURM_PMIX_FENCE"] + environment_["OMP_NUM_THREADS"], "ring4");
  EXPECT_TRUE(words(true, "", 0, 1).ends_with("--overlap --nodes=2 --nodelist=n1,n2 --ntasks=4"));
}

TEST_F(Launchers, OpenMpiGetsTheWordsOfItsVersion) {
  environment_["LOCKSTEP_START"] = "mpirun";
  environment_["UCX_TLS"] = environment_["CUDA_VISIBLE_DEVICES"] = "x";
  const auto four = words(false, "mpirun (Open MPI) 4.1.4", 2);
  EXPECT_TRUE(test::has(four,
                        "--map-by ppr:2:node:PE=4 --bind-to core:overload-allowed --oversubscribe -n 4 "
                        "--hostfile nodes --mca plm_rsh_agent agent"));
  EXPECT_TRUE(test::has(four, "-x UCX_TLS"));
  EXPECT_FALSE(test::has(four, "CUDA_VISIBLE_DEVICES")) << "another node has its own";
  environment_["LOCKSTEP_NODEFILE"] = "left";
  EXPECT_TRUE(test::has(words(false, "mpirun (Open MPI) 4.1.4", 2), "--hostfile left "));
  environment_.erase("LOCKSTEP_NODEFILE");
  for (const int cores : {9, 0}) {  // of 8 that the job was given; 0 = unknown
    own_cores_ = cores;
    EXPECT_TRUE(test::has(words(false, "mpirun (Open MPI) 4.1.4", 2), "--map-by ppr:2:node --bind-to none "));
  }
  cores_per_rank_ = 1;
  EXPECT_TRUE(test::has(words(false, "mpirun (Open MPI) 4.1.4", 0), "--bind-to none "));
  own_cores_ = 8;
  EXPECT_FALSE(test::has(words(false, "mpirun (Open MPI) 4.1.4", 0), "--bind-to"));
  cores_per_rank_ = 4;
  environment_["LOCKSTEP_THREADS_PER_CORE"] = "1";
  EXPECT_TRUE(test::has(words(false, "mpirun (Open MPI) 4.1.4", 2), "--bind-to none "));
  environment_.erase("LOCKSTEP_THREADS_PER_CORE");
  fake_.answers["error-nonzero-status"] = "!unknown";
  const auto five = words(false, "mpirun (Open MPI) 5.0.11", 4);
  EXPECT_TRUE(test::has(five, "abort-nonzero-status=0 --map-by ppr:4:node:oversubscribe --bind-to none"));
  fake_.answers["ompi_info"] = "mca:plm:tm:version\n";
  EXPECT_EQ(words(false, "mpirun (Open MPI) 4.1.4", 2).find("--hostfile"), std::string::npos);
  components_ = 2;
  EXPECT_TRUE(test::has(test::refusal_of([&] { words(true, "mpirun (Open MPI) 4.1.4", 2); }), "component"));
}

TEST_F(Launchers, PalsAndHydraGetTheirs) {
  environment_["LOCKSTEP_START"] = "mpiexec";
  EXPECT_EQ(words(false, "PALS 1.2.5", 2), "mpiexec -n 4 --ppn 2 --depth 4 --cpu-bind depth");
  EXPECT_EQ(words(false, "PALS 1.2.5", 0), "mpiexec -n 4 --depth 4 --cpu-bind depth --hostfile nodes");
  const auto of_hydra = [&](int64_t per_node = 2) { return words(false, "HYDRA build", per_node); };
  EXPECT_TRUE(test::has(test::refusal_of([&] { of_hydra(); }), "pbs_tmrsh"));
  environment_["HYDRA_BOOTSTRAP"] = "ssh";
  EXPECT_EQ(of_hydra() + environment_["HYDRA_LAUNCHER"], "mpiexec -n 4 -ppn 2 -f nodes");
  environment_["CUDA_VISIBLE_DEVICES"] = "2,3";
  EXPECT_EQ(of_hydra(0), "mpiexec -n 4 -f nodes") << "ssh sets none on the other nodes";
  environment_.erase("HYDRA_BOOTSTRAP");
  add("pbs_tmrsh");
  nodes_ = 1;
  EXPECT_EQ(of_hydra(0), "mpiexec -n 4 -f nodes");
  nodes_ = 2;
  for (int start = 0; start < 2; ++start)
    EXPECT_EQ(of_hydra(0), "env -u CUDA_VISIBLE_DEVICES mpiexec -n 4 -f nodes") << start;
  EXPECT_EQ(environment_["HYDRA_LAUNCHER"] + environment_["HYDRA_LAUNCHER_EXEC"], "rshagent");
  EXPECT_EQ(environment_["HYDRA_LAUNCHER_AUTOFORK"], "0") << "PBS would not set them on the first node";
}

}  // namespace
}  // namespace lockstep::job
