// Chapter 1: what distributed training is; a first job.
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "course/checks/scripts.h"
#include "course/workshop/attempt.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace {

CHECK_OF("start.1", attempt) {
  for (const auto& [world, each] : {std::pair(5, 2), std::pair(4, 2), std::pair(4, 3)}) {
    const auto run = attempt.run({.world = world,
                                  .label = format("{} ranks, {} a node", world, each),
                                  .args = {std::to_string(each)}});
    for (const auto& rank : run.ranks) {
      const int node = rank.rank() / each;
      rank.expect_number("node", node, "how many nodes are full before it comes? They count from 0");
      rank.expect_number("local rank", rank.rank() % each, "how many ranks are on its node before it?");
      rank.expect_number("ranks on its node", std::min(each, world - node * each),
                         "the last node may not be full");
    }
  }
}

// --- start.2 and start.3: the lines of a job script that a scheduler reads

// By name, the last of a name: "select" -> "2:ncpus=2" of #PBS -l, "nodes" -> "2" of #SBATCH.
using Directives = std::map<std::string, std::string>;

std::string value_of(const Directives& directives, const std::string& name) {
  const auto found = directives.find(name);
  return found == directives.end() ? "" : found->second;
}

// The words behind each `sign`. NotYet where a directive stands below the first command, or is a comment by
// a slip: "# PBS -l", "##SBATCH --nodes".
std::vector<Words> directive_lines(const std::string& script, const std::string& sign) {
  std::vector<Words> found;
  bool has_begun = false;
  int number = 0;
  for (const auto& line : base::split(script, '\n')) {
    ++number;
    const auto text = base::trimmed(line);
    has_begun = has_begun || (!text.empty() && text[0] != '#');
    if (line.starts_with(sign)) {
      expect(!has_begun, format("line {} is not read: this {} stands below the first command", number, sign));
      std::istringstream stream(line.substr(sign.size()));
      Words words;
      for (std::string word; stream >> word && word[0] != '#';) words.push_back(word);
      found.push_back(words);
      continue;
    }
    const auto name = line.find_first_not_of("# \t");
    const auto meant = sign.substr(1) + " -";
    expect(
        !line.starts_with("#") || name == std::string::npos || line.compare(name, meant.size(), meant) != 0,
        format("line {} is a comment: a directive begins with {}, and nothing before it", number, sign));
  }
  return found;
}

void put(Directives& directives, const std::string& text) {
  const auto sign = text.find('=');
  const auto name = text.substr(0, sign);
  directives[name == "tasks-per-node" ? "ntasks-per-node" : name] =
      sign == std::string::npos ? "" : text.substr(sign + 1);
}

// -l select=...,walltime=... in one word or two
Directives pbs_directives(const std::string& script) {
  Directives directives;
  for (const auto& words : directive_lines(script, "#PBS")) {
    for (size_t at = 0; at < words.size(); ++at) {
      if (!words[at].starts_with("-l")) continue;
      const bool is_apart = words[at] == "-l" && at + 1 < words.size();
      for (const auto& resource : base::split(is_apart ? words[at + 1] : words[at].substr(2), ','))
        put(directives, resource);
    }
  }
  return directives;
}

// --nodes=2, --nodes 2, -N 2, -N2
Directives slurm_directives(const std::string& script) {
  static const std::map<char, std::string> long_names = {
      {'N', "nodes"}, {'n', "ntasks"}, {'c', "cpus-per-task"}, {'t', "time"}, {'a', "array"}};
  Directives directives;
  for (const auto& words : directive_lines(script, "#SBATCH")) {
    for (size_t at = 0; at < words.size(); ++at) {
      const auto& word = words[at];
      const bool has_next = at + 1 < words.size() && !words[at + 1].starts_with("-");
      const auto next = has_next ? words[at + 1] : "";
      if (word.starts_with("--")) {
        put(directives, word.substr(2) + (word.find('=') == std::string::npos ? "=" + next : ""));
      } else if (word.starts_with("-") && word.size() > 1) {
        const auto name = long_names.find(word[1]);
        if (name != long_names.end()) directives[name->second] = word.size() > 2 ? word.substr(2) : next;
      }
    }
  }
  return directives;
}

void require_ten_minutes(const std::string& name, const std::string& asked, std::optional<long> seconds) {
  expect(!asked.empty(), format("it says nothing of time: {} is missing", name),
         "the site's default may be hours, and a job that says how short it is starts sooner");
  expect(seconds.has_value(), format("{}={} is no time", name, asked),
         "hours, minutes and seconds: 01:30:00");
  expect(*seconds == 600, format("{}={} is {} seconds, and 10 minutes are wanted", name, asked, *seconds));
}

// select=COUNT:ncpus=N:mpiprocs=N+..., with PBS's defaults: 2 chunks of 2 ranks and 2 cores in all
void check_select(const std::string& select) {
  int chunks = 0;
  for (const auto& kind : base::split(select, '+')) {
    std::map<std::string, std::string> chunk = {{"count", "1"}, {"ncpus", "1"}, {"mpiprocs", "1"}};
    const auto parts = base::split(kind, ':');
    for (size_t at = 0; at < parts.size(); ++at) {
      const auto sign = parts[at].find('=');
      if (sign != std::string::npos) chunk[parts[at].substr(0, sign)] = parts[at].substr(sign + 1);
      if (sign == std::string::npos && at == 0) chunk["count"] = parts[at];
    }
    for (const auto* name : {"count", "ncpus", "mpiprocs"})
      expect(whole_number(chunk[name]).value_or(0) > 0,
             format("'{}' is no number, in select's {}", chunk[name], name));
    chunks += *whole_number(chunk["count"]);
    expect(chunk["mpiprocs"] == "2",
           format("it starts {} rank{} in each chunk, and 2 are wanted", chunk["mpiprocs"],
                  chunk["mpiprocs"] == "1" ? "" : "s"),
           "mpiprocs says how many; without it, it is 1");
    expect(chunk["ncpus"] == "2",
           format("each chunk has {} cores, and 2 ranks of one core use 2", chunk["ncpus"]),
           "ncpus says how many cores a chunk has; without it, it is 1");
  }
  expect(chunks == 2, format("it asks for {} chunk{}, and 2 are wanted", chunks, chunks == 1 ? "" : "s"),
         "a chunk is a piece of one node: how many nodes are wanted, and how many ranks are in a chunk?");
}

// with a lockstep that only notes what it is called with
void run_pbs_script(Attempt& attempt) {
  const auto programs = attempt.folder() + "/programs", submitted = attempt.folder() + "/submitted";
  make_stand_in(programs, "lockstep", ": >trained-here\n");
  std::filesystem::create_directories(submitted);
  const auto ending =
      attempt.start({"bash", attempt.path()},
                    {"PATH=" + programs + ":/usr/local/bin:/usr/bin:/bin", "PBS_O_WORKDIR=" + submitted});
  const auto calls = noted_calls(programs);
  expect(
      calls.size() == 1,
      format("lockstep is called {} times, and one call starts all ranks\n{}", calls.size(), ending.printed),
      "its commands below the directives stay as they were");
  expect(calls[0].find(".yaml") != std::string::npos, "lockstep is not told what to train",
         "lockstep job train configs/pima.yaml stays as it was");
  expect(std::filesystem::exists(submitted + "/trained-here"),
         "the training begins in another folder than the one where the job was submitted",
         "a job begins in the home folder: cd \"$PBS_O_WORKDIR\" stays as it was");
}

CHECK_OF("start.2", attempt) {
  const auto asked = pbs_directives(attempt.text());
  expect(asked.contains("select"), "it does not say which nodes: -l select=... is missing",
         "nodes=2:ppn=2 is the old way of saying it");
  check_select(value_of(asked, "select"));
  for (const auto* name : {"nodes", "ncpus", "mpiprocs", "ppn"})
    expect(!asked.contains(name),
           format("{}={} stands beside select, and qsub refuses both together", name, value_of(asked, name)),
           "what a chunk has is said in select, behind a colon");
  const auto place = base::split(value_of(asked, "place"), ':');
  expect(std::any_of(place.begin(), place.end(),
                     [](const std::string& word) { return word == "scatter" || word == "vscatter"; }),
         "its 2 chunks may both lie on one node", "what says that each gets a node of its own?");
  const auto walltime = value_of(asked, "walltime");
  require_ten_minutes("walltime", walltime, seconds_of(walltime, 1));
  require_bash(attempt);
  run_pbs_script(attempt);
}

// with programs that note whether they were started once or as all ranks
void run_slurm_script(Attempt& attempt) {
  const auto programs = attempt.folder() + "/programs";
  for (const auto* name : {"lockstep", "srun", "mpirun", "mpiexec"}) make_stand_in(programs, name);
  const auto ending =
      attempt.start({"bash", attempt.path()}, {"PATH=" + programs + ":/usr/local/bin:/usr/bin:/bin",
                                               "SLURM_SUBMIT_DIR=" + attempt.folder(), "SLURM_JOB_ID=4711",
                                               "SLURM_NTASKS=4", "SLURM_JOB_NUM_NODES=2", "SLURM_NNODES=2"});
  const auto calls = noted_calls(programs);
  int started = 0;
  for (const auto& call : calls) {
    const auto launch = launch_of(call);
    const auto& program = launch.program;  // the job's work, and not --version
    if (program.size() < 2 || (program[1] != "whoami" && program[1] != "train")) continue;
    expect(!call.starts_with("lockstep "), "the script runs lockstep once, and the job has 4 ranks",
           "the script is one process, on the first node; what starts the others?");
    require_all_ranks(launch, 4, 2);
    ++started;
  }
  expect(started == 1,
         format("the script starts lockstep {} times as 4 ranks, and once is wanted; it did this:\n{}\n{}",
                started, base::join(calls, "\n"), ending.printed),
         "one srun starts a program once for every task");
}

CHECK_OF("start.3", attempt) {
  const auto asked = slurm_directives(attempt.text());
  const auto nodes = value_of(asked, "nodes"), tasks = value_of(asked, "ntasks"),
             each = value_of(asked, "ntasks-per-node"), cores = value_of(asked, "cpus-per-task"),
             time = value_of(asked, "time");
  expect(!nodes.empty(), "it does not say how many nodes: --nodes is missing");
  expect(nodes == "2" || nodes == "2-2",
         format("it asks for {} node{}, and 2 are wanted", nodes, nodes == "1" ? "" : "s"));
  expect(tasks.empty() || tasks == "4", format("it asks for {} tasks, and 2 nodes with 2 each are 4", tasks));
  expect(!each.empty(), "it does not say how many ranks each node has",
         "Slurm calls a rank a task, and gives one a node where nothing else is said; 4 tasks on 2 nodes may "
         "be three "
         "and one");
  expect(each == "2", format("it starts {} ranks on each node, and 2 are wanted", each));
  expect(cores.empty() || cores == "1", format("each rank has {} cores, and 1 is wanted", cores));
  expect(!asked.contains("array"), "--array makes jobs of their own, and one job of 4 ranks is wanted",
         "ranks of different jobs never meet");
  require_ten_minutes("--time", time, slurm_seconds(time));
  require_bash(attempt);
  run_slurm_script(attempt);
}

// --- start.4: it stands before a program, whose words and exit code come through

void require_passed_on(Attempt& attempt) {
  const auto printed = attempt.start({"bash", attempt.path(), "printf", "<%s>", "two words", ""}, {}).printed;
  expect(printed.find("<two words><>") != std::string::npos,
         "the script does not run the program behind it with its words as they are; it prints: " + printed,
         "its last line stays as it was: exec \"$@\"");
  const int left = attempt.start({"bash", attempt.path(), "bash", "-c", "exit 7"}, {}).status;
  expect(left == 7, format("the program's end is lost: it left with 7, and the script with {}", left),
         "to a scheduler a run that failed would be well: exec lets the program's own end be seen");
  const auto became =
      attempt.start({"bash", "-c", "echo $$; exec bash \"$0\" bash -c 'echo $$'", attempt.path()}, {});
  std::istringstream words(became.printed);
  const Words numbers{std::istream_iterator<std::string>(words), {}};
  expect(numbers.size() >= 2 && numbers.front() == numbers.back(),
         "the script waits above the program, and does not become it",
         "a signal of the scheduler's would end this shell, and not reach the rank: exec \"$@\"");
}

struct Finding {
  const char* check;  // of the doctor's
  const char* words;  // in what it says
};
constexpr Finding kHarmful[] = {{"limits", "may open"},
                                {"variables", "OMP_NUM_THREADS"},
                                {"threads", "OMP_NUM_THREADS"},
                                {"variables", "TORCH_DISTRIBUTED_DEBUG"}};

// where everybody may open few files it is not the script's doing
bool is_the_scripts(const Finding& finding) {
  rlimit files{};
  return finding.check != std::string_view("limits") || ::getrlimit(RLIMIT_NOFILE, &files) != 0 ||
         files.rlim_max >= 1024;
}

CHECK_OF("start.4", attempt) {
  require_bash(attempt);
  require_passed_on(attempt);
  const auto run = attempt.lockstep({"doctor", "--json"}, {.label = "the doctor, on 2 ranks",
                                                           .before = {"bash", attempt.path()},
                                                           .settings = {"TORCH_DISTRIBUTED_DEBUG=OFF"},
                                                           .time = std::chrono::seconds(70),
                                                           .may_fail = true});
  const auto& printed = run.ranks.front().ending().printed;
  const auto begin = ("\n" + printed).find("\n{");
  std::istringstream stream(begin == std::string::npos ? "" : printed.substr(begin));
  nlohmann::json report;
  try {
    stream >> report;  // what follows it is not read
  } catch (const nlohmann::json::exception&) {
    report = nullptr;
  }
  expect(report.is_object() && report.contains("findings"),
         "the doctor did not come to its report:\n" + printed);
  expect(report.value("world", 0) == 2,
         "each rank takes itself for the only one: it knows nothing of the launcher",
         "the launcher tells a rank its number by variables: does the script take them away?");
  expect(report.value("complete", false), "one of the 2 ranks did not come to the doctor",
         "the script runs on each rank: is it kind to all?");
  for (const auto& harmful : kHarmful) {
    for (const auto& finding : report["findings"]) {
      const std::string says = finding.value("says", "");
      expect(finding.value("check", "") != harmful.check || finding.value("verdict", "") == "ok" ||
                 says.find(harmful.words) == std::string::npos || !is_the_scripts(harmful),
             format("the doctor's check `{}`: {}", harmful.check, says),
             "what would the rank have if the script had set nothing?");
    }
  }
}

}  // namespace
}  // namespace lockstep::workshop
