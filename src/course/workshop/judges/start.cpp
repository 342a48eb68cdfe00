// Chapter 1: what distributed training is; a first job.
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "course/workshop/judge.h"
#include "course/workshop/judges/directives.h"
#include "course/workshop/judges/launched.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/base/words.h"

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

// a number of a rank, as it is or as it is often taken for
using Number = int (*)(const Layout& layout, int rank);

struct Mistake {
  Number number;
  const char* what;
  const char* think = "";
};

struct Question {
  const char* name;  // what it is shown as
  const char* words;
  Number number;
  std::vector<Mistake> mistakes;
};

int node_of(const Layout& layout, int rank) {
  return layout.node(rank);
}
int place_of(const Layout& layout, int rank) {
  return rank % layout.per_node;
}
int number_in_job(const Layout&, int rank) {
  return rank;
}

const std::vector<Question>& questions() {
  constexpr const char* kHowManyFull = "how many nodes are full before it comes?";
  static const std::vector<Question> table = {
      {"node",
       "node",
       node_of,
       {{[](const Layout&, int) { return 0; }, "as if there were one node", kHowManyFull},
        {[](const Layout& layout, int rank) { return rank < layout.per_node ? 0 : 1; },
         "as if there were two nodes", kHowManyFull},
        {[](const Layout& layout, int rank) { return rank % layout.nodes(); },
         "as if ranks were dealt out like cards", "a node is filled before the next one"},
        {[](const Layout& layout, int rank) { return layout.node(rank) + 1; }, "that counts from 1"},
        {place_of, "that is its place on the node",
         "/ says how many nodes are full, and % what is left over"},
        {number_in_job, "that is its number in the job", kHowManyFull}}},
      {"local rank",
       "place",
       place_of,
       {{[](const Layout& layout, int rank) { return place_of(layout, rank) + 1; }, "that counts from 1"},
        {number_in_job, "that is its number in the job", "how many ranks are on the nodes before?"},
        {[](const Layout& layout, int rank) { return rank / layout.nodes(); },
         "as if ranks were dealt out like cards", "a node is filled before the next one"},
        {node_of, "that is its node", "/ says how many nodes are full, and % what is left over"}}},
      {"ranks on its node",
       "a node of so many ranks:",
       [](const Layout& layout, int rank) { return layout.ranks_on(layout.node(rank)); },
       {{[](const Layout& layout, int) { return layout.per_node; }, "the last node is not full"},
        {[](const Layout& layout, int) { return layout.world; }, "these are all ranks of the job"},
        {[](const Layout& layout, int rank) {
           const bool is_last = layout.node(rank) == layout.nodes() - 1;
           return is_last ? layout.world % layout.per_node : layout.per_node;
         },
         "nothing is left over where all nodes are full"},
        {[](const Layout& layout, int rank) { return std::min(layout.per_node, layout.world - rank); },
         "these are the ranks from it on", "its node has those before it, too"}}},
  };
  return table;
}

// the rows of all ranks are compared: one number alone fits several mistakes
void judge_question(const Run& run, const Layout& layout, const Question& question) {
  std::vector<double> said;
  for (const auto& rank : run.ranks) said.push_back(rank.number(question.name));
  const auto is_like = [&](Number number) {
    for (const auto& rank : run.ranks) {
      if (said[static_cast<size_t>(rank.rank())] != number(layout, rank.rank())) return false;
    }
    return true;
  };
  for (const auto& rank : run.ranks) {
    const double is = said[static_cast<size_t>(rank.rank())];
    const int wanted = question.number(layout, rank.rank());
    if (is == wanted) continue;
    const auto what = layout.of(rank) + format("says {} {}, and it is {}", question.words, shown(is), wanted);
    for (const auto& mistake : question.mistakes) {
      if (is_like(mistake.number)) throw NotYet(format("{}: {}", what, mistake.what), mistake.think);
    }
    throw NotYet(what, "write down all ranks of this job, node by node");
  }
}

LOCKSTEP_JUDGE("start.1", attempt) {
  for (const Layout layout : {Layout{5, 2}, Layout{4, 2}, Layout{4, 3}}) {
    const auto run = attempt.run({.world = layout.world, .args = {std::to_string(layout.per_node)}});
    for (const auto& question : questions()) judge_question(run, layout, question);
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

// qsub refuses what is of the old way beside a select
void require_no_old_way(const DirectiveOptions& asked) {
  for (const auto* name : {"nodes", "ncpus", "mpiprocs", "ppn"}) {
    if (const auto value = value_of(asked, name))
      throw NotYet(format("{}={} stands beside select, and qsub refuses both together", name, *value),
                   "what a chunk has is said in select, behind a colon");
  }
}

// place=scatter:excl
void require_scattered(const DirectiveOptions& asked) {
  const auto place = value_of(asked, "place");
  const auto words = base::split(place.value_or(""), ':');
  const bool is_scattered = std::any_of(words.begin(), words.end(), [](const std::string& word) {
    return word == "scatter" || word == "vscatter";
  });
  if (!is_scattered)
    throw NotYet("its 2 chunks may both lie on one node", "what says that each gets a node of its own?");
}

void require_trained_once(const std::vector<std::string>& calls, const std::string& folder,
                          const std::string& printed) {
  if (calls.empty())
    throw NotYet("the script trains nothing: it never comes to lockstep_train\n" + printed,
                 "its commands below the directives stay as they were");
  if (calls.size() > 1)
    throw NotYet(format("lockstep_train is called {} times, and once it starts all ranks", calls.size()));
  if (calls.front().find(".yaml") == std::string::npos)
    throw NotYet("lockstep_train is not told what is to be trained",
                 "lockstep_train configs/pima.yaml stays as it was");
  if (!std::filesystem::exists(folder + "/trained-here"))
    throw NotYet("the training begins in another folder than the one where the job was submitted",
                 "a job begins in the home folder: cd \"$PBS_O_WORKDIR\" stays as it was");
}

// with a lockstep.sh that only notes what is trained
void act_on_pbs(Attempt& attempt) {
  const auto home = attempt.folder() + "/home", programs = attempt.folder() + "/programs";
  const auto submitted = attempt.folder() + "/submitted";
  make_stand_in(programs, "noted_train", ": >trained-here\n");
  for (const auto& folder : {home + "/job_scripts", submitted}) std::filesystem::create_directories(folder);
  std::ofstream(home + "/job_scripts/lockstep.sh") << "lockstep_train() { noted_train \"$@\"; }\n";
  const auto acted =
      attempt.start({"bash", attempt.path()}, {"PATH=" + programs + ":/usr/local/bin:/usr/bin:/bin",
                                               "LOCKSTEP_HOME=" + home, "PBS_O_WORKDIR=" + submitted});
  require_trained_once(noted_calls(programs), submitted, acted.printed);
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
  require_no_old_way(asked);
  require_scattered(asked);
  const auto time = value_of(asked, "walltime");
  require_ten_minutes(time, time ? pbs_seconds(*time) : std::nullopt, "walltime");
  require_bash(attempt);
  act_on_pbs(attempt);
}

void require_tasks(const DirectiveOptions& asked) {
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
  int started = 0;
  for (const auto& call : calls) {
    const auto launch = launch_of(call);
    if (!is_work(launch.program)) continue;
    if (call.starts_with("lockstep "))
      throw NotYet("the script runs lockstep once, and the job has 4 ranks",
                   "the script is one process, on the first node; what starts the others?");
    require_all_ranks(launch, 4, 2);
    ++started;
  }
  if (started > 1)
    throw NotYet(format("lockstep is started {} times as 4 ranks, and once is wanted", started),
                 "one srun starts a program once for every task");
  if (started == 0)
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
  if (const auto array = value_of(asked, "array"))
    throw NotYet(format("--array={} makes jobs of their own, and one job of 4 ranks is wanted", *array),
                 "ranks of different jobs never meet");
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
  if (said.printed.find("printf: ") != std::string::npos)
    throw NotYet("the program behind the script is run, and without its words",
                 "\"$1\" is the program alone; what is all of it?");
  if (said.printed.find("<two words><>") == std::string::npos)
    throw NotYet("the script does not run the program behind it",
                 "its last line stays as it was: exec \"$@\"");
  constexpr int kStatus = 7;
  const auto left = attempt.start({"bash", attempt.path(), "bash", "-c", format("exit {}", kStatus)}, {});
  if (left.status != kStatus)
    throw NotYet(
        format("the program's end is lost: it left with {}, and the script with {}", kStatus, left.status),
        "to a scheduler a run that failed would be well: exec lets the program's own end be seen");
  const auto became =
      attempt.start({"bash", "-c", "echo $$; exec bash \"$0\" bash -c 'echo $$'", attempt.path()}, {});
  std::istringstream words(became.printed);
  const std::vector<std::string> numbers{std::istream_iterator<std::string>(words), {}};
  if (numbers.size() < 2 || numbers.front() != numbers.back())
    throw NotYet("the script waits above the program, and does not become it",
                 "a signal of the scheduler's would end this shell, and not reach the rank: exec \"$@\"");
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
    {"variables", "OMP_NUM_THREADS", "OMP_NUM_THREADS is no number of threads",
     "take the line out, or say a number; set to nothing is not the same as not set"},
    {"threads", "OMP_NUM_THREADS", "each rank takes the cores of all",
     "what is a rank's share, and who finds it out where the variable is not set?"},
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
