// Chapter 1: what distributed training is; a first job.
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
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
      rank.expect_number("node", node, "count the full nodes before this rank's; nodes count from 0");
      rank.expect_number("local rank", rank.rank() % each, "count the ranks before it on its node");
      rank.expect_number("ranks on its node", std::min(each, world - node * each),
                         "note that the last node may not be full");
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

// The words behind each `sign`. CheckFailure where a directive stands below the first command, or is a
// comment by a slip: "# PBS -l", "##SBATCH --nodes".
std::vector<Words> directive_lines(const std::string& script, const std::string& sign) {
  std::vector<Words> found;
  bool has_begun = false;
  int number = 0;
  for (const auto& line : base::split(script, '\n')) {
    ++number;
    const auto text = base::trimmed(line);
    has_begun = has_begun || (!text.empty() && text[0] != '#');
    if (line.starts_with(sign)) {
      expect(!has_begun, format("line {} is ignored: this {} comes after the first command", number, sign));
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
        format("line {} is a comment: a directive begins with {} at the start of the line", number, sign));
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
  expect(!asked.empty(), format("the time limit is missing: {}", name),
         "set it: the site's default may be hours, and a short job starts sooner");
  expect(seconds.has_value(), format("{}={} is not a time", name, asked),
         "write hours, minutes and seconds: 01:30:00");
  expect(*seconds == 600, format("{}={} is {} seconds instead of 10 minutes", name, asked, *seconds));
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
             format("'{}' is not a number, in select's {}", chunk[name], name));
    chunks += *whole_number(chunk["count"]);
    expect(chunk["mpiprocs"] == "2",
           format("it starts {} rank{} in each chunk instead of 2", chunk["mpiprocs"],
                  chunk["mpiprocs"] == "1" ? "" : "s"),
           "set mpiprocs; its default is 1");
    expect(chunk["ncpus"] == "2",
           format("each chunk has {} cores, but 2 ranks of one core need 2", chunk["ncpus"]),
           "set ncpus, the cores of a chunk; its default is 1");
  }
  expect(chunks == 2, format("it asks for {} chunk{} instead of 2", chunks, chunks == 1 ? "" : "s"),
         "count the nodes and the ranks in a chunk: a chunk is a part of one node");
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
  expect(calls.size() == 1,
         format("the script calls lockstep {} times instead of once\n{}", calls.size(), ending.printed),
         "restore the commands below the directives");
  expect(calls[0].find(".yaml") != std::string::npos, "lockstep gets no config to train",
         "restore lockstep job train configs/pima.yaml");
  expect(std::filesystem::exists(submitted + "/trained-here"),
         "the training starts in another folder than the one where the job was submitted",
         "restore cd \"$PBS_O_WORKDIR\": a job starts in the home folder");
}

CHECK_OF("start.2", attempt) {
  const auto asked = pbs_directives(attempt.text());
  expect(asked.contains("select"), "it requests no nodes: -l select=... is missing",
         "use select instead of nodes=2:ppn=2, the old syntax");
  check_select(value_of(asked, "select"));
  for (const auto* name : {"nodes", "ncpus", "mpiprocs", "ppn"})
    expect(!asked.contains(name),
           format("{}={} is used with select, but qsub rejects both together", name, value_of(asked, name)),
           "write the resources of a chunk in select, after a colon");
  const auto place = base::split(value_of(asked, "place"), ':');
  expect(std::any_of(place.begin(), place.end(),
                     [](const std::string& word) { return word == "scatter" || word == "vscatter"; }),
         "its 2 chunks may both be on one node", "which directive gives each its own node?");
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
    expect(!call.starts_with("lockstep "), "the script runs lockstep once, but the job has 4 ranks",
           "start the others: the script is one process, on the first node");
    require_all_ranks(launch, 4, 2);
    ++started;
  }
  expect(started == 1,
         format("the script starts lockstep {} times as 4 ranks instead of once; it did this:\n{}\n{}",
                started, base::join(calls, "\n"), ending.printed),
         "use one srun, which starts the program once per task");
}

CHECK_OF("start.3", attempt) {
  const auto asked = slurm_directives(attempt.text());
  const auto nodes = value_of(asked, "nodes"), tasks = value_of(asked, "ntasks"),
             each = value_of(asked, "ntasks-per-node"), cores = value_of(asked, "cpus-per-task"),
             time = value_of(asked, "time");
  expect(!nodes.empty(), "it requests no nodes: --nodes is missing");
  expect(nodes == "2" || nodes == "2-2",
         format("it asks for {} node{} instead of 2", nodes, nodes == "1" ? "" : "s"));
  expect(tasks.empty() || tasks == "4",
         format("it asks for {} tasks, but 2 nodes with 2 each have 4", tasks));
  expect(!each.empty(), "it does not set the number of ranks per node",
         "set the tasks per node (a rank is a task in Slurm): the default is one per node, and 4 tasks on 2 "
         "nodes may be split three and one");
  expect(each == "2", format("it starts {} ranks on each node instead of 2", each));
  expect(cores.empty() || cores == "1", format("each rank has {} cores instead of 1", cores));
  expect(!asked.contains("array"), "--array makes separate jobs instead of one job of 4 ranks",
         "remove --array: ranks of different jobs cannot connect");
  require_ten_minutes("--time", time, slurm_seconds(time));
  require_bash(attempt);
  run_slurm_script(attempt);
}

// --- start.4: it stands before a program, whose words and exit code come through

void require_passed_on(Attempt& attempt) {
  const auto printed = attempt.start({"bash", attempt.path(), "printf", "<%s>", "two words", ""}, {}).printed;
  expect(printed.find("<two words><>") != std::string::npos,
         "the script does not run its program with unchanged arguments; it prints: " + printed,
         "restore the last line: exec \"$@\"");
  const int left = attempt.start({"bash", attempt.path(), "bash", "-c", "exit 7"}, {}).status;
  expect(left == 7,
         format("the program's exit status is lost: it exited with 7, but the script with {}", left),
         "use exec, which keeps the program's exit status: otherwise the scheduler sees a failed run as a "
         "success");
  const auto became =
      attempt.start({"bash", "-c", "echo $$; exec bash \"$0\" bash -c 'echo $$'", attempt.path()}, {});
  std::istringstream words(became.printed);
  const Words numbers{std::istream_iterator<std::string>(words), {}};
  expect(
      numbers.size() >= 2 && numbers.front() == numbers.back(),
      "the script waits for the program instead of replacing itself with it",
      "use exec \"$@\": otherwise a signal from the scheduler ends this shell and does not reach the rank");
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
         "the doctor did not finish its report:\n" + printed);
  expect(report.value("world", 0) == 2, "each rank runs as the only rank, without the launcher's variables",
         "keep the variables with which the launcher sets a rank's number: does the script unset them?");
  expect(report.value("complete", false), "one of the 2 ranks did not reach the doctor",
         "check that the script works on every rank: each runs it");
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
