// Chapter 1: what distributed training is; a first job.
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/workshop/judge.h"
#include "lockstep/workshop/judges/directives.h"
#include "lockstep/workshop/judges/launched.h"

namespace lockstep::workshop {
namespace {

constexpr long kTenMinutes = 600;

struct Layout {
  int world, per_node;

  int nodes() const { return (world + per_node - 1) / per_node; }
  int node(int rank) const { return rank / per_node; }
  int ranks_on(int node) const { return std::min(per_node, world - node * per_node); }
  std::string of(const RankRun& rank) const {
    return format("with {} ranks, {} a node, rank {} ", world, per_node, rank.rank());
  }
};

void judge_node(const RankRun& rank, const Layout& layout) {
  const double said = rank.number("node");
  const int node = layout.node(rank.rank());
  if (said == node) return;
  const auto what = layout.of(rank) + format("says node {}, and it is on node {}", shown(said), node);
  if (said == 0)
    throw NotYet(what + ": as if there were one node", "how many nodes are full before it comes?");
  if (said == rank.rank() % layout.nodes() && rank.rank() < layout.per_node)
    throw NotYet(what + ": as if ranks were dealt out like cards", "a node is filled before the next one");
  if (said == 1)
    throw NotYet(what + ": as if there were two nodes", "how many nodes are full before it comes?");
  throw NotYet(what);
}

void judge_local_rank(const RankRun& rank, const Layout& layout) {
  const double said = rank.number("local rank");
  const int local = rank.rank() % layout.per_node;
  if (said == local) return;
  throw NotYet(layout.of(rank) + format("says place {}, and it is {}", shown(said), local) +
               (said == local + 1 ? ": that counts from 1" : ""));
}

void judge_ranks_on_node(const RankRun& rank, const Layout& layout) {
  const double said = rank.number("ranks on its node");
  const int there = layout.ranks_on(layout.node(rank.rank()));
  if (said == there) return;
  throw NotYet(layout.of(rank) +
               format("says that its node has {} ranks, and it has {}", shown(said), there) +
               (said == layout.per_node ? ": the last node is not full"
                : said == 0             ? ": nothing is left over where all nodes are full"
                                        : ""));
}

LOCKSTEP_JUDGE("start.1", attempt) {
  for (const Layout layout : {Layout{5, 2}, Layout{4, 2}, Layout{4, 3}}) {
    const auto run = attempt.run({.world = layout.world, .args = {std::to_string(layout.per_node)}});
    for (const auto judge : {judge_node, judge_local_rank, judge_ranks_on_node}) {
      for (const auto& rank : run.ranks) judge(rank, layout);
    }
  }
}

void require_bash(Attempt& attempt) {
  const auto read = attempt.start({"bash", "-n", attempt.path()}, {});
  if (!read.is_well()) throw NotYet("bash cannot read this script:\n" + read.printed);
}

std::string duration(long seconds) {
  if (seconds % 3600 == 0) return format("{} hours", seconds / 3600);
  return seconds % 60 == 0 ? format("{} minutes", seconds / 60) : format("{} seconds", seconds);
}

void require_ten_minutes(const std::optional<std::string>& asked, std::optional<long> seconds,
                         const std::string& name) {
  if (!asked)
    throw NotYet(format("it says nothing of time: {} is missing", name),
                 "the site's default may be hours, and a job that says how short it is starts sooner");
  if (!seconds)
    throw NotYet(format("{}={} is no time", name, *asked), "hours, minutes and seconds: 01:30:00");
  if (*seconds != kTenMinutes)
    throw NotYet(format("{}={} is {}, and 10 minutes are wanted", name, *asked, duration(*seconds)));
}

void require_two_chunks(const std::vector<Chunks>& kinds) {
  int count = 0;
  for (const auto& kind : kinds) count += kind.count;
  if (count == 1)
    throw NotYet("it asks for 1 chunk, and a chunk lies on one node", "how many nodes are wanted?");
  if (count != 2)
    throw NotYet(format("it asks for {} chunks, and 2 are wanted", count),
                 "a chunk is a piece of a node, not a rank: how many ranks are in one?");
}

void require_two_ranks_each(const Chunks& kind) {
  if (kind.ranks != 2)
    throw NotYet(
        format("it starts {} rank{} in each chunk, and 2 are wanted", kind.ranks, kind.ranks == 1 ? "" : "s"),
        "mpiprocs says how many; without it, it is 1");
  if (kind.cores < 2)
    throw NotYet("in each chunk 2 ranks share 1 core",
                 "ncpus says how many cores a chunk has; without it, it is 1");
  if (kind.cores > 2)
    throw NotYet(format("each chunk has {} cores, and 2 ranks of one core use 2", kind.cores),
                 "others wait for the rest");
}

// with a lockstep.sh that only notes what is trained
void act_on_pbs(Attempt& attempt) {
  const auto home = attempt.folder() + "/home", programs = attempt.folder() + "/programs";
  make_stand_in(programs, "noted_train");
  std::filesystem::create_directories(home + "/job_scripts");
  std::ofstream(home + "/job_scripts/lockstep.sh") << "lockstep_train() { noted_train \"$@\"; }\n";
  const auto acted =
      attempt.start({"bash", attempt.path()}, {"PATH=" + programs + ":/usr/local/bin:/usr/bin:/bin",
                                               "LOCKSTEP_HOME=" + home, "PBS_O_WORKDIR=" + attempt.folder()});
  if (noted_calls(programs).empty())
    throw NotYet("the script trains nothing: it never comes to lockstep_train\n" + acted.printed,
                 "its commands below the directives stay as they were");
}

LOCKSTEP_JUDGE("start.2", attempt) {
  const auto asked = asked_of_pbs(attempt.text());
  const auto select = value_of(asked, "select");
  if (!select)
    throw NotYet("it does not say which nodes: -l select=... is missing",
                 "nodes=2:ppn=2 is the old way of saying it");
  const auto kinds = chunks_of(*select);
  require_two_chunks(kinds);
  for (const auto& kind : kinds) require_two_ranks_each(kind);
  const auto place = value_of(asked, "place");
  if (!place || place->find("scatter") == std::string::npos)
    throw NotYet("its 2 chunks may both lie on one node", "what says that each gets a node of its own?");
  const auto time = value_of(asked, "walltime");
  require_ten_minutes(time, time ? pbs_seconds(*time) : std::nullopt, "walltime");
  require_bash(attempt);
  act_on_pbs(attempt);
}

void require_tasks(const Asked& asked) {
  const auto tasks = value_of(asked, "ntasks"), each = value_of(asked, "ntasks-per-node");
  if (tasks && tasks != "4")
    throw NotYet(format("it asks for {} tasks, and 2 nodes with 2 each are 4", *tasks));
  if (tasks && !each)
    throw NotYet("4 tasks on 2 nodes may be three and one",
                 "which option says how many tasks each node has?");
  if (!each)
    throw NotYet("it starts 1 rank on each node, and 2 are wanted",
                 "Slurm calls a rank a task, and gives one a node "
                 "where nothing else is said");
  if (each != "2") throw NotYet(format("it starts {} ranks on each node, and 2 are wanted", *each));
  if (const auto cores = value_of(asked, "cpus-per-task"); cores && cores != "1")
    throw NotYet(format("each rank has {} cores, and 1 is wanted", *cores));
}

// calls of lockstep that are the job's work, and not --version
bool is_work(const std::vector<std::string>& program) {
  return program.size() > 1 && (program[1] == "whoami" || program[1] == "train");
}

void require_ranks(const std::vector<std::string>& calls, const std::string& printed) {
  bool is_started = false;
  for (const auto& call : calls) {
    const auto launch = launch_of(call);
    if (!is_work(launch.program)) continue;
    if (call.starts_with("lockstep "))
      throw NotYet("the script runs lockstep once, and the job has 4 ranks",
                   "the script is one process, on the first node; what starts the others?");
    require_all_ranks(launch, 4, 2);
    is_started = true;
  }
  if (!is_started)
    throw NotYet("the script never starts lockstep; it did this:\n" + base::join(calls, "\n") + printed);
}

// the script's commands run, with programs that note whether they were started once or as all ranks
void act_on_slurm(Attempt& attempt) {
  const auto programs = attempt.folder() + "/programs";
  for (const auto* name : {"lockstep", "srun", "mpirun", "mpiexec"}) make_stand_in(programs, name);
  const auto acted =
      attempt.start({"bash", attempt.path()}, {"PATH=" + programs + ":/usr/local/bin:/usr/bin:/bin",
                                               "SLURM_SUBMIT_DIR=" + attempt.folder(), "SLURM_JOB_ID=4711",
                                               "SLURM_NTASKS=4", "SLURM_JOB_NUM_NODES=2", "SLURM_NNODES=2"});
  require_ranks(noted_calls(programs), acted.printed);
}

LOCKSTEP_JUDGE("start.3", attempt) {
  const auto asked = asked_of_slurm(attempt.text());
  const auto nodes = value_of(asked, "nodes");
  if (!nodes) throw NotYet("it does not say how many nodes: --nodes is missing");
  if (nodes != "2" && nodes != "2-2")
    throw NotYet(format("it asks for {} node{}, and 2 are wanted", *nodes, nodes == "1" ? "" : "s"));
  require_tasks(asked);
  const auto time = value_of(asked, "time");
  require_ten_minutes(time, time ? slurm_seconds(*time) : std::nullopt, "--time");
  require_bash(attempt);
  act_on_slurm(attempt);
}

// start.4.sh stands before a program: words and status of any come through
void require_passed_on(Attempt& attempt) {
  const auto said = attempt.start({"bash", attempt.path(), "printf", "<%s>", "two words", ""}, {});
  if (said.printed.find("<two><words>") != std::string::npos)
    throw NotYet("the program's words fall apart: 'two words' came as two",
                 "what do the quotes of \"$@\" do?");
  if (said.printed.find("<two words><>") == std::string::npos)
    throw NotYet("the script does not run the program behind it",
                 "its last line stays as it was: exec \"$@\"");
  constexpr int kStatus = 7;
  const auto left = attempt.start({"bash", attempt.path(), "bash", "-c", format("exit {}", kStatus)}, {});
  if (left.status != kStatus)
    throw NotYet(
        format("the program's end is lost: it left with {}, and the script with {}", kStatus, left.status),
        "to a scheduler a run that failed would be well: exec lets the program's own end be seen");
}

nlohmann::json report_in(const std::string& printed) {
  const auto begin = ("\n" + printed).find("\n{");
  if (begin == std::string::npos) return {};
  std::istringstream stream(printed.substr(begin));
  nlohmann::json report;
  try {
    stream >> report;
  } catch (const nlohmann::json::exception&) {
    return {};
  }
  return report;
}

// what the doctor tells of 2 ranks that are started through the learner's script
nlohmann::json doctors_report(Attempt& attempt) {
  const auto run = attempt.lockstep({"doctor", "--json"}, {.label = "the doctor, on 2 ranks",
                                                           .before = {"bash", attempt.path()},
                                                           .settings = {"TORCH_DISTRIBUTED_DEBUG=OFF"},
                                                           .time = std::chrono::seconds(70),
                                                           .may_fail = true});
  const auto& printed = run.ranks.front().ending().printed;
  auto report = report_in(printed);
  if (!report.is_object() || !report.contains("findings"))
    throw NotYet("the doctor did not come to its report:\n" + printed);
  if (report.value("world", 0) != 2)
    throw NotYet("each rank takes itself for the only one: it knows nothing of the launcher",
                 "the launcher tells a rank its number by variables: does the script take them away?");
  if (!report.value("complete", false))
    throw NotYet("one of the 2 ranks did not come to the doctor",
                 "the script runs on each rank: is it kind to all?");
  return report;
}

struct Fault {
  const char *check, *words;  // of the doctor's finding
  const char *means, *think;
};

constexpr Fault kFaults[] = {
    {"limits", "may open", "a rank may open too few files to reach the others",
     "a limit that is taken down stays down; what if the script leaves it alone?"},
    {"threads", "OMP_NUM_THREADS", "each rank takes the cores of all",
     "what is a rank's share, and who finds it out where the variable is not set?"},
    {"variables", "OMP_NUM_THREADS", "OMP_NUM_THREADS is set to nothing, which is not the same as not set",
     "take the line out, or say a number"},
    {"variables", "TORCH_DISTRIBUTED_DEBUG", "each collective is compared before it runs",
     "of use while one looks for a hang; and in every run after it?"},
};

// where everybody may open few files it is not the script's doing
bool is_the_scripts(const Fault& fault) {
  constexpr rlim_t kFew = 1024;
  rlimit files{};
  return fault.check != std::string("limits") || ::getrlimit(RLIMIT_NOFILE, &files) != 0 ||
         files.rlim_max >= kFew;
}

// one finding may tell of several variables: "A=1 does this; B=2 does that"
std::string part_with(const std::string& words, const std::string& says) {
  const auto at = says.find(words);
  if (at == std::string::npos) return {};
  const auto before = says.rfind("; ", at);
  const auto begin = before == std::string::npos ? 0 : before + 2;
  return says.substr(begin, says.find("; ", at) - begin);
}

void require_without(const Fault& fault, const nlohmann::json& report) {
  if (!is_the_scripts(fault)) return;
  for (const auto& finding : report["findings"]) {
    if (finding.value("check", "") != fault.check || finding.value("verdict", "") == "ok") continue;
    const auto says = part_with(fault.words, finding.value("says", ""));
    if (!says.empty())
      throw NotYet(format("{}; the doctor's check `{}`: {}", fault.means, fault.check, says), fault.think);
  }
}

LOCKSTEP_JUDGE("start.4", attempt) {
  require_bash(attempt);
  require_passed_on(attempt);
  const auto report = doctors_report(attempt);
  for (const auto& fault : kFaults) require_without(fault, report);
}

}  // namespace
}  // namespace lockstep::workshop
