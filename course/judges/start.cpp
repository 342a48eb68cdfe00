// Chapter 1: what distributed training is; a first job.
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "course/judges/shared.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace {

// --- start.1

// the rows of all ranks are compared: one number alone fits several mistakes
void judge_layout(const Run& run, int each) {
  const int world = static_cast<int>(run.ranks.size()), nodes = (world + each - 1) / each;
  const auto row = [&](auto number) {
    Row numbers;
    for (int rank = 0; rank < world; ++rank) numbers.push_back(number(rank));
    return numbers;
  };
  const auto ranks = row([](int rank) { return rank; }), node = row([&](int rank) { return rank / each; }),
             place = row([&](int rank) { return rank % each; });
  const auto ranks_on = [&](int rank) { return std::min(each, world - rank / each * each); };
  const auto judge = [&](const char* name, const char* words, const Row& wanted,
                         const std::vector<std::pair<Row, Guess>>& rows) {
    const auto said = of_all(run, name);
    std::vector<Guess> guesses;
    for (const auto& [numbers, guess] : rows) guesses.push_back({said == numbers, guess.what, guess.think});
    const auto at =
        static_cast<size_t>(std::mismatch(said.begin(), said.end(), wanted.begin()).first - said.begin());
    if (at == said.size()) return;
    expect(false,
           format("with {} ranks, {} a node, rank {} says {} {}, and it is {}", world, each, at, words,
                  shown(said[at]), shown(wanted[at])),
           guesses, "write down all ranks of this job, node by node");
  };
  constexpr const char *kFull = "how many nodes are full before it comes?",
                       *kCards = "as if ranks were dealt out like cards",
                       *kFilled = "a node is filled before the next one",
                       *kDivision = "/ says how many nodes are full, and % what is left over";
  judge("node", "node", node,
        {{row([](int) { return 0; }), {true, "as if there were one node", kFull}},
         {row([&](int rank) { return rank < each ? 0 : 1; }), {true, "as if there were two nodes", kFull}},
         {row([&](int rank) { return rank % nodes; }), {true, kCards, kFilled}},
         {row([&](int rank) { return rank / each + 1; }), {true, "that counts from 1"}},
         {place, {true, "that is its place on the node", kDivision}},
         {ranks, {true, "that is its number in the job", kFull}}});
  judge("local rank", "place", place,
        {{row([&](int rank) { return rank % each + 1; }), {true, "that counts from 1"}},
         {ranks, {true, "that is its number in the job", "how many ranks are on the nodes before?"}},
         {row([&](int rank) { return rank / nodes; }), {true, kCards, kFilled}},
         {node, {true, "that is its node", kDivision}}});
  judge("ranks on its node", "a node of so many ranks:", row(ranks_on),
        {{Row(ranks.size(), each), {true, "the last node is not full"}},
         {Row(ranks.size(), world), {true, "these are all ranks of the job"}},
         {row([&](int rank) { return rank / each == nodes - 1 ? world % each : each; }),
          {true, "nothing is left over where all nodes are full"}},
         {row([&](int rank) { return std::min(each, world - rank); }),
          {true, "these are the ranks from it on", "its node has those before it, too"}}});
}

LOCKSTEP_JUDGE("start.1", attempt) {
  for (const auto& [world, each] : {std::pair(5, 2), std::pair(4, 2), std::pair(4, 3)})
    judge_layout(attempt.run({.world = world, .args = {std::to_string(each)}}), each);
}

// --- start.2 and start.3: job scripts

void require_bash(Attempt& attempt) {
  const auto read = attempt.start({"bash", "-n", attempt.path()}, {});
  expect(read.is_well(), "bash cannot read this script:\n" + read.printed);
}

std::string duration(long seconds) {
  if (seconds % 3600 == 0) return format("{} hours", seconds / 3600);
  return seconds % 60 == 0 ? format("{} minutes", seconds / 60) : format("{} seconds", seconds);
}

void require_ten_minutes(const std::optional<std::string>& asked,
                         std::optional<long> (*seconds_of)(const std::string&), const std::string& name) {
  expect(asked.has_value(), format("it says nothing of time: {} is missing", name), {},
         "the site's default may be hours, and a job that says how short it is starts sooner");
  const auto seconds = seconds_of(*asked);
  expect(seconds.has_value(), format("{}={} is no time", name, *asked), {},
         "hours, minutes and seconds: 01:30:00");
  expect(*seconds == 600, format("{}={} is {}, and 10 minutes are wanted", name, *asked, duration(*seconds)));
}

void judge_select(const std::vector<Chunks>& kinds) {
  int count = 0;
  for (const auto& kind : kinds) count += kind.count;
  expect(count != 1, "it asks for 1 chunk, and a chunk lies on one node", {}, "how many nodes are wanted?");
  expect(count == 2, format("it asks for {} chunks, and 2 are wanted", count), {},
         "a chunk is a piece of a node, not a rank: how many ranks are in one?");
  for (const auto& kind : kinds) {
    expect(
        kind.ranks == 2,
        format("it starts {} rank{} in each chunk, and 2 are wanted", kind.ranks, kind.ranks == 1 ? "" : "s"),
        {}, "mpiprocs says how many; without it, it is 1");
    expect(kind.cores >= 2, "in each chunk 2 ranks share 1 core", {},
           "ncpus says how many cores a chunk has; without it, it is 1");
    expect(kind.cores == 2, format("each chunk has {} cores, and 2 ranks of one core use 2", kind.cores), {},
           "others wait for the rest");
  }
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
  const auto calls = noted_calls(programs);
  expect(!calls.empty(), "the script trains nothing: it never comes to lockstep_train\n" + acted.printed, {},
         "its commands below the directives stay as they were");
  expect(calls.size() == 1,
         format("lockstep_train is called {} times, and once it starts all ranks", calls.size()));
  expect(calls[0].find(".yaml") != std::string::npos, "lockstep_train is not told what is to be trained", {},
         "lockstep_train configs/pima.yaml stays as it was");
  expect(std::filesystem::exists(submitted + "/trained-here"),
         "the training begins in another folder than the one where the job was submitted", {},
         "a job begins in the home folder: cd \"$PBS_O_WORKDIR\" stays as it was");
}

LOCKSTEP_JUDGE("start.2", attempt) {
  const auto asked = asked_of_pbs(attempt.text());
  const auto select = value_of(asked, "select");
  expect(select.has_value(), "it does not say which nodes: -l select=... is missing", {},
         "nodes=2:ppn=2 is the old way of saying it");
  judge_select(chunks_of(*select));
  for (const auto* name : {"nodes", "ncpus", "mpiprocs", "ppn"})
    expect(!value_of(asked, name),
           format("{}={} stands beside select, and qsub refuses both together", name,
                  value_of(asked, name).value_or("")),
           {}, "what a chunk has is said in select, behind a colon");
  const auto place = base::split(value_of(asked, "place").value_or(""), ':');
  expect(std::any_of(place.begin(), place.end(),
                     [](const std::string& word) { return word == "scatter" || word == "vscatter"; }),
         "its 2 chunks may both lie on one node", {}, "what says that each gets a node of its own?");
  require_ten_minutes(value_of(asked, "walltime"), pbs_seconds, "walltime");
  require_bash(attempt);
  act_on_pbs(attempt);
}

void require_tasks(const DirectiveOptions& asked) {
  const auto tasks = value_of(asked, "ntasks"), each = value_of(asked, "ntasks-per-node"),
             cores = value_of(asked, "cpus-per-task");
  expect(!tasks || tasks == "4",
         format("it asks for {} tasks, and 2 nodes with 2 each are 4", tasks.value_or("")));
  expect(!tasks || each, "4 tasks on 2 nodes may be three and one", {},
         "which option says how many tasks each node has?");
  expect(each.has_value(), "it starts 1 rank on each node, and 2 are wanted", {},
         "Slurm calls a rank a task, and gives one a node where nothing else is said");
  expect(each == "2", format("it starts {} ranks on each node, and 2 are wanted", *each));
  expect(!cores || cores == "1", format("each rank has {} cores, and 1 is wanted", cores.value_or("")));
}

// the script's commands run, with programs that note whether they were started once or as all ranks
void act_on_slurm(Attempt& attempt) {
  const auto programs = attempt.folder() + "/programs";
  for (const auto* name : {"lockstep", "srun", "mpirun", "mpiexec"}) make_stand_in(programs, name);
  const auto acted =
      attempt.start({"bash", attempt.path()}, {"PATH=" + programs + ":/usr/local/bin:/usr/bin:/bin",
                                               "SLURM_SUBMIT_DIR=" + attempt.folder(), "SLURM_JOB_ID=4711",
                                               "SLURM_NTASKS=4", "SLURM_JOB_NUM_NODES=2", "SLURM_NNODES=2"});
  const auto calls = noted_calls(programs);
  int started = 0;
  for (const auto& call : calls) {
    const auto launch = launch_of(call);
    const auto& program = launch.program;  // the job's work, and not --version
    if (program.size() < 2 || (program[1] != "whoami" && program[1] != "train")) continue;
    expect(!call.starts_with("lockstep "), "the script runs lockstep once, and the job has 4 ranks", {},
           "the script is one process, on the first node; what starts the others?");
    require_all_ranks(launch, 4, 2);
    ++started;
  }
  expect(started <= 1, format("lockstep is started {} times as 4 ranks, and once is wanted", started), {},
         "one srun starts a program once for every task");
  expect(started == 1,
         "the script never starts lockstep; it did this:\n" + base::join(calls, "\n") + acted.printed);
}

LOCKSTEP_JUDGE("start.3", attempt) {
  const auto asked = asked_of_slurm(attempt.text());
  const auto nodes = value_of(asked, "nodes");
  expect(nodes.has_value(), "it does not say how many nodes: --nodes is missing");
  expect(nodes == "2" || nodes == "2-2",
         format("it asks for {} node{}, and 2 are wanted", *nodes, nodes == "1" ? "" : "s"));
  require_tasks(asked);
  const auto array = value_of(asked, "array");
  expect(!array,
         format("--array={} makes jobs of their own, and one job of 4 ranks is wanted", array.value_or("")),
         {}, "ranks of different jobs never meet");
  require_ten_minutes(value_of(asked, "time"), slurm_seconds, "--time");
  require_bash(attempt);
  act_on_slurm(attempt);
}

// --- start.4: it stands before a program, whose words and status come through

void require_passed_on(Attempt& attempt) {
  const auto said = attempt.start({"bash", attempt.path(), "printf", "<%s>", "two words", ""}, {}).printed;
  const auto says = [&](const char* words) { return said.find(words) != std::string::npos; };
  expect(!says("<two><words>"), "the program's words fall apart: 'two words' came as two", {},
         "what do the quotes of \"$@\" do?");
  expect(!says("printf: "), "the program behind the script is run, and without its words", {},
         "\"$1\" is the program alone; what is all of it?");
  expect(says("<two words><>"), "the script does not run the program behind it", {},
         "its last line stays as it was: exec \"$@\"");
  const int left = attempt.start({"bash", attempt.path(), "bash", "-c", "exit 7"}, {}).status;
  expect(left == 7, format("the program's end is lost: it left with 7, and the script with {}", left), {},
         "to a scheduler a run that failed would be well: exec lets the program's own end be seen");
  const auto became =
      attempt.start({"bash", "-c", "echo $$; exec bash \"$0\" bash -c 'echo $$'", attempt.path()}, {});
  std::istringstream words(became.printed);
  const std::vector<std::string> numbers{std::istream_iterator<std::string>(words), {}};
  expect(numbers.size() >= 2 && numbers.front() == numbers.back(),
         "the script waits above the program, and does not become it", {},
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
  expect(report.is_object() && report.contains("findings"),
         "the doctor did not come to its report:\n" + printed);
  expect(report.value("world", 0) == 2,
         "each rank takes itself for the only one: it knows nothing of the launcher", {},
         "the launcher tells a rank its number by variables: does the script take them away?");
  expect(report.value("complete", false), "one of the 2 ranks did not come to the doctor", {},
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
  return fault.check != std::string_view("limits") || ::getrlimit(RLIMIT_NOFILE, &files) != 0 ||
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
