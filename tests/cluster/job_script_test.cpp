// What a job script asks for, and what a site cannot give.
#include "tools/cluster/job_script.h"

#include <gtest/gtest.h>

#include <cctype>

#include "refusal.h"
#include "tools/cluster/scheduler.h"

namespace lockstep::cluster {
namespace {

bool has_line(const std::string& text, const std::string& line) {
  return ("\n" + text).find("\n" + line + "\n") != std::string::npos;
}

Site totals() {
  return parse_site(
      "scheduler: pbs\nform: totals\nqueue: gpu\naccount: required\naccount_flag: -P\nstorage_flag: storage\n"
      "queues:\n"
      "  gpu: {gpus_per_node: 4, cores_per_node: 48, cores_per_gpu: 12, memory_gb: 380, max_nodes: 4, "
      "max_time: 2h}\n"
      "  cpu: {gpus_per_node: 0, cores_per_node: 48, ranks_per_node: 4, min_nodes: 2}\n",
      "totals.yaml");
}

JobRequest request() {
  return {.config = "c.yaml", .account = "a00"};
}

TEST(JobScript, OfTotalsSumsOverTheNodes) {
  auto wanted = request();
  wanted.nodes = 2;
  wanted.storage = "scratch/a00+gdata/a00";
  const auto text = render(totals(), wanted);
  for (const char* line : {"#PBS -P a00", "#PBS -q gpu", "#PBS -l ncpus=96", "#PBS -l ngpus=8",
                           "#PBS -l mem=760GB", "#PBS -l storage=scratch/a00+gdata/a00",
                           "export LOCKSTEP_RANKS_PER_NODE=4", "export LOCKSTEP_CPUS_PER_RANK=12"})
    EXPECT_TRUE(has_line(text, line)) << line << "\n" << text;
  wanted.nodes = wanted.gpus_per_node = 1;
  EXPECT_TRUE(has_line(render(totals(), wanted), "#PBS -l mem=95GB")) << "a quarter of the node";
}

TEST(JobScript, AsksForThreadsWhereTheSchedulerCountsThem) {
  const auto site = parse_site(
      "scheduler: slurm\nthreads_per_core: 2\nqueue_flag: --qos\nqueue: a\ndirectives: [-C gpu]\n"
      "queues: {a: {gpus_per_node: 4, cores_per_node: 64}}\n",
      "s.yaml");
  const auto text = render(site, request());
  for (const char* line :
       {"#SBATCH --qos=a", "#SBATCH --cpus-per-task=32", "#SBATCH --gpus-per-node=4", "#SBATCH -C gpu",
        "#SBATCH --signal=B:USR1@120", "#SBATCH --requeue", "export LOCKSTEP_CPUS_PER_RANK=16"})
    EXPECT_TRUE(has_line(text, line)) << line << "\n" << text;
}

TEST(JobScript, IsToldOfItsEndWhenAFifthOfItsTimeIsLeft) {
  auto wanted = request();
  for (const auto& [time, told] :
       std::vector<std::pair<std::string, std::string>>{{"60s", "12"}, {"5m", "60"}, {"2h", "120"}}) {
    wanted.time = time;
    const auto text = render(parse_site("scheduler: slurm\n", "s.yaml"), wanted);
    EXPECT_TRUE(has_line(text, "#SBATCH --signal=B:USR1@" + told)) << text;
  }
}

TEST(JobScript, OfASweepGivesEachTaskItsOwnSettings) {
  auto wanted = request();
  wanted.sets = {"train.epochs=1"};
  wanted.sweep = {{"optim.lr=0.1"}, {"optim.lr=0.01", "run.name=it's"}};
  const auto slurm = render(parse_site("scheduler: slurm\n", "s.yaml"), wanted);
  EXPECT_TRUE(has_line(slurm, "#SBATCH --array=0-1"));
  EXPECT_TRUE(has_line(slurm, "#SBATCH --output=%x-%A_%a.out"));
  EXPECT_TRUE(has_line(slurm, "  1) settings=(--set optim.lr=0.01 --set $'run.name=it\\'s') ;;")) << slurm;
  EXPECT_TRUE(has_line(slurm,
                       "LOCKSTEP_SCRIPT=$0 exec \"$LOCKSTEP_PROGRAM\" job train c.yaml "
                       "--set train.epochs=1 \"${settings[@]}\""))
      << slurm;
  const auto pbs = render(parse_site("scheduler: pbs\n", "p.yaml"), wanted);
  EXPECT_TRUE(has_line(pbs, "#PBS -J 0-1"));
  EXPECT_TRUE(test::has(pbs, "\nunset SET CONFIG ")) << "or a variable of the user's would change the job";
}

TEST(JobScript, FillsUpWhatWasNotSaid) {
  auto wanted = request();
  auto given = resources(totals(), wanted);
  EXPECT_EQ(given.gpus, 4);
  EXPECT_EQ(given.ranks, 4);
  wanted.gpus_per_node = 1;
  given = resources(totals(), wanted);
  EXPECT_EQ(given.ranks, 1);
  EXPECT_EQ(given.cores, 12);
  wanted.queue = "cpu";
  wanted.gpus_per_node = -1;
  wanted.nodes = 2;
  given = resources(totals(), wanted);
  EXPECT_EQ(given.ranks, 4);
  EXPECT_EQ(given.cores_per_rank, 12);
  EXPECT_EQ(resources(parse_site("scheduler: pbs\n", "p.yaml"), {.config = "c"}).ranks, 2);
}

struct TooMuch {
  const char* what;
  void (*ask)(JobRequest&);
};

class Refused : public ::testing::TestWithParam<TooMuch> {};

TEST_P(Refused, WithTheLimit) {
  auto wanted = request();
  GetParam().ask(wanted);
  const auto error = test::error_from([&] { render(totals(), wanted); });
  EXPECT_TRUE(test::has(error.what(), GetParam().what));
  EXPECT_FALSE(error.hint().empty());
}

INSTANTIATE_TEST_SUITE_P(
    , Refused,
    ::testing::Values(
        TooMuch{"--nodes 5: the site allows at most 4", [](JobRequest& job) { job.nodes = 5; }},
        TooMuch{"--nodes must be from 1", [](JobRequest& job) { job.nodes = 0; }},
        TooMuch{"--nodes 1: the queue requires at least 2", [](JobRequest& job) { job.queue = "cpu"; }},
        TooMuch{"--gpus-per-node 8: the site allows at most 4",
                [](JobRequest& job) { job.gpus_per_node = 8; }},
        TooMuch{"--gpus-per-node must be from 0", [](JobRequest& job) { job.gpus_per_node = -5; }},
        TooMuch{"a comma, which starts another resource",
                [](JobRequest& job) { job.storage = "scratch/a00,walltime=99:00:00"; }},
        TooMuch{"have no GPUs",
                [](JobRequest& job) { job.queue = "cpu", job.nodes = 2, job.gpus_per_node = 1; }},
        TooMuch{"more than the 48 cores of 4 GPUs", [](JobRequest& job) { job.cores_per_rank = 13; }},
        TooMuch{"the nodes have 48 cores",
                [](JobRequest& job) { job.gpus_per_node = 0, job.ranks_per_node = 49; }},
        TooMuch{"--time 3h: the site allows at most 2h", [](JobRequest& job) { job.time = "3h"; }},
        TooMuch{"at least 1m", [](JobRequest& job) { job.time = "59s"; }},
        TooMuch{"requires an account", [](JobRequest& job) { job.account = ""; }},
        TooMuch{"must use whole nodes", [](JobRequest& job) { job.nodes = job.gpus_per_node = 2; }},
        TooMuch{"has no queue gpuu", [](JobRequest& job) { job.queue = "gpuu"; }},
        TooMuch{"is not one word", [](JobRequest& job) { job.account = "a 00"; }}));

struct Worded {
  const char* what;
  const char* allowed;  // beside letters and digits
  void (*put)(JobRequest&, const std::string&);
};

constexpr Worded kWorded[] = {
    {"name", "._+-", [](JobRequest& job, const std::string& text) { job.name = text; }},
    {"account", "._+-@:/=,", [](JobRequest& job, const std::string& text) { job.account = text; }},
    {"queue", "._+-@:/=,", [](JobRequest& job, const std::string& text) { job.queue = text; }},
    {"storage", "._+-@:/=", [](JobRequest& job, const std::string& text) { job.storage = text; }},
    {"dependency", "._+-@:/=,", [](JobRequest& job, const std::string& text) { job.dependency = text; }}};

bool takes(const Site& site, const Worded& field, const std::string& text) {
  auto wanted = request();
  field.put(wanted, text);
  try {
    render(site, wanted);
    return true;
  } catch (const InputError&) {
    return false;
  }
}

// every byte, in front, inside and behind: what a scheduler could take for more than a letter is refused
TEST(JobScript, PutsWordsAloneIntoDirectives) {
  for (const char* text : {"scheduler: slurm\n", "scheduler: pbs\nstorage_flag: storage\n"}) {
    const auto site = parse_site(text, "s.yaml");
    for (const auto& field : kWorded) {
      if (site.slurm() && std::string(field.what) == "storage") continue;
      for (int byte = 1; byte < 256; ++byte) {
        const std::string one(1, static_cast<char>(byte));
        const bool fits =
            byte < 128 && (std::isalnum(byte) || std::string(field.allowed).find(one) != std::string::npos);
        for (const auto& word : {"a" + one, "a" + one + "b", one + "b"}) {
          const bool dashed = word[0] == '-';
          EXPECT_EQ(takes(site, field, word), fits && !dashed) << field.what << " " << byte << " in " << word;
        }
      }
    }
  }
}

TEST(Quoted, IsOneLineWhateverTheText) {
  EXPECT_EQ(quoted("optim.lr=0.1"), "optim.lr=0.1");
  EXPECT_EQ(quoted(""), "$''");
  EXPECT_EQ(quoted("a b $(x) `y`"), "$'a b $(x) `y`'");
  EXPECT_EQ(quoted("it's"), "$'it\\'s'");
  EXPECT_EQ(quoted("a\n#PBS -l x\\"), "$'a\\012#PBS -l x\\\\'");
  EXPECT_EQ(quoted("~"), "$'~'");
  EXPECT_EQ(quoted("J\xf6rg"), "$'J\\366rg'");
}

}  // namespace
}  // namespace lockstep::cluster
