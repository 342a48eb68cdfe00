// Chapter 8: checkpoints, time limits, requeue.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <regex>
#include <sstream>

#include "course/checks/scripts.h"
#include "course/workshop/attempt.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace {

// --- resume.1: a run that stops after 2 of 4 epochs, and goes on

constexpr size_t kEpochs = 4, kStopAfter = 2;

void require_epochs(const RankRun& rank, const std::string& run, size_t first, size_t end) {
  Row wanted;
  for (auto epoch = first; epoch < end; ++epoch) wanted.push_back(static_cast<double>(epoch));
  const auto epochs = flat(rank.rows("epoch"));
  expect(epochs == wanted,
         format("{} (rank {}) trains the epochs {} instead of {}", run, rank.rank(), shown(epochs),
                shown(wanted)),
         "save and load the object that knows the epoch",
         {{!epochs.empty() && epochs[0] == 0 && first > 0, "it begins with epoch 0 again"}});
}

constexpr const char* kState[][2] = {
    {"weights", "save and load the model that is trained"},
    {"momentum", "what does SGD remember from one step to the next?"},
    {"rate", "save and load the schedule too: it counts epochs and sets the rate"},
    {"random", "restore the state of the random generator, from which Dropout draws, after loading it"},
};

void check_resumed(const RankRun& whole, const RankRun& stopped, const RankRun& resumed) {
  require_epochs(resumed, "the resumed run", kStopAfter, kEpochs);
  for (const auto& [name, think] : kState) {
    const double was = stopped.number(format("end: {}", name)),
                 is = resumed.number(format("begin: {}", name));
    expect(was == is,
           format("{} was not restored on rank {}: {} at the stop, {} after resuming", name, resumed.rank(),
                  shown(was), shown(is)),
           think);
  }
  for (const auto* name : {"order", "rate", "final"}) {
    const auto all = whole.rows(name), rest = resumed.rows(name);
    const auto skipped = std::string(name) == "final" ? 0 : std::min(all.size(), kStopAfter);
    expect(!all.empty() && std::equal(all.begin() + static_cast<std::ptrdiff_t>(skipped), all.end(),
                                      rest.begin(), rest.end()),
           format("after the stop `{}` is {} on rank {}, but differs without a stop", name, shown(flat(rest)),
                  resumed.rank()),
           "check what the next step depends on: the sample order (epoch number), the rate (schedule), and "
           "everything that was loaded");
  }
}

CHECK_OF("resume.1", attempt) {
  const auto whole = attempt.run({.args = {"whole.pt", "4"}});
  const auto stopped = attempt.run({.args = {"halves.pt", "4", "2"}});
  const auto resumed = attempt.run({.args = {"halves.pt", "4"}});
  for (size_t i = 0; i < resumed.ranks.size(); ++i) {
    require_epochs(whole.ranks[i], "the uninterrupted run", 0, kEpochs);
    require_epochs(stopped.ranks[i], "the interrupted run", 0, kStopAfter);
    check_resumed(whole.ranks[i], stopped.ranks[i], resumed.ranks[i]);
  }
}

// --- resume.2: 12 steps, and a signal to one rank, or to all, during one of them

constexpr int kAll = -1, kNoRank = 99;

CHECK_OF("resume.2", attempt) {
  struct Notice {
    int world, who, when;
  };
  for (const Notice notice : {Notice{2, kNoRank, 12}, Notice{2, kAll, 4}, Notice{3, 0, 3}, Notice{2, 1, 5}}) {
    const auto whom = notice.who == kNoRank ? std::string("no signal")
                                            : format("a signal to {} during step {}",
                                                     notice.who == kAll ? std::string("every rank")
                                                                        : format("rank {}", notice.who),
                                                     notice.when);
    const auto run = attempt.run({.world = notice.world,
                                  .label = format("{} ranks, {}", notice.world, whom),
                                  .args = {std::to_string(notice.who), std::to_string(notice.when)},
                                  .settings = {"LOCKSTEP_TIMEOUT=4"}});
    for (const auto& rank : run.ranks) {
      const auto steps = std::ssize(rank.rows("step"));
      expect(
          steps == notice.when && rank.has("saved"),
          format("with {} ranks and {}, rank {} made {} steps and {} checkpoint instead of {} steps and one",
                 notice.world, whom, rank.rank(), steps, rank.has("saved") ? "a" : "no", notice.when),
          "stop all ranks if any of them received the signal");
    }
  }
}

// --- resume.3: a job script

// The options of a script's #SBATCH lines: Slurm reads them up to the first command.
Words sbatch_words(const std::string& script) {
  Words found;
  std::istringstream lines(script);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    if (line.front() != '#') break;
    std::istringstream words(line);
    std::string word;
    if (!(words >> word) || word != "#SBATCH") continue;
    while (words >> word && word.front() != '#') found.push_back(word);
  }
  return found;
}

// --open-mode=append, or --open-mode append; Slurm takes the last
std::string last_value(const Words& words, const std::string& option) {
  std::string value;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].starts_with(option + "=")) value = words[i].substr(option.size() + 1);
    if (words[i] == option && i + 1 < words.size()) value = words[i + 1];
  }
  return value;
}

void check_directives(const Words& words) {
  const auto last = std::find_if(words.rbegin(), words.rend(), [](const std::string& word) {
    return word == "--requeue" || word == "--no-requeue";
  });
  expect(last != words.rend() && *last == "--requeue",
         "the job cannot be requeued: --requeue is not the last option of its kind among the #SBATCH lines "
         "before the first command");
  expect(last_value(words, "--open-mode") == "append",
         "the second start overwrites the log of the first ten minutes",
         "choose one of the two values of --open-mode");
  std::smatch parts;
  const auto signal = last_value(words, "--signal");
  const std::regex form("([BR]+:)?(SIG)?(USR[12]|TERM|10|12|15)(@([0-9]{1,5}))?");
  expect(std::regex_match(signal, parts, form),
         format("--signal={} is not a signal that Slurm can send", signal),
         "use --signal=NAME@SECONDS, which warns the ranks before the time limit");
  expect(parts[1].str().find('B') == std::string::npos,
         format("--signal={} signals only the script, not the ranks", signal), "look up B: in `man sbatch`");
  const int seconds = parts[5].matched ? std::stoi(parts[5]) : 60;
  expect(seconds >= 20 && seconds <= 300, format("--signal={} comes {} s before the end", signal, seconds),
         "leave enough time for a step and a checkpoint, but waste little of the ten minutes");
  const auto long_name = last_value(words, "--time"),
             time = long_name.empty() ? last_value(words, "-t") : long_name;
  const auto limit = slurm_seconds(time);
  expect(limit && *limit <= 600, format("--time={} is not the 10 minutes of a job", time),
         "continue the training in the next ten minutes instead of asking for more");
}

bool trains(const std::string& call) {
  const auto program = launch_of(call).program;
  return call.starts_with("srun ") && program.size() > 1 && program[1] == "train";
}

bool asks_for_status(const std::string& call) {
  const auto program = launch_of(call).program;
  return program.size() > 1 && program[1] == "status";
}

// Returns the run's name.
std::string check_training(const Words& calls) {
  expect(std::count_if(calls.begin(), calls.end(), trains) == 1,
         "the script does not start the training once with srun; it does this:\n" + base::join(calls, "\n"));
  const auto training = std::find_if(calls.begin(), calls.end(), trains);
  require_all_ranks(launch_of(*training), 2, 1);
  expect(training->find("--resume auto") != std::string::npos ||
             training->find("--resume=auto") != std::string::npos,
         "make the first start begin the run, and the second continue it",
         "which value of --resume continues an existing run, or starts one?");
  expect(std::none_of(calls.begin(), training,
                      [](const std::string& call) { return call.starts_with("scontrol requeue"); }),
         "the job is requeued before it has trained");
  expect(std::none_of(calls.begin(), training, asks_for_status) ||
             std::any_of(training, calls.end(), asks_for_status),
         "the script asks for the state before the training instead of after it",
         "ask after the training: only then is the state known");
  const auto at = training->find("run.name=");
  return at == std::string::npos ? "" : training->substr(at + 9, training->find(' ', at) - at - 9);
}

// `lockstep status runs/NAME/` of the run that is trained
void check_status_calls(const Words& calls, const std::string& trained) {
  for (const auto& call : calls) {
    if (!asks_for_status(call)) continue;
    std::string folder;
    for (const auto& word : launch_of(call).program) folder = word.starts_with("-") ? folder : word;
    const auto run = (std::filesystem::path(folder) / "").parent_path();
    expect(run.filename() == trained && run.has_parent_path(),
           format("the run is in runs/{}, but the script asks for the state of {}", trained, folder),
           "note that --set run.name=NAME creates runs/NAME");
  }
}

void check_requeue(int status, const Words& calls) {
  Words requeues;
  std::copy_if(calls.begin(), calls.end(), std::back_inserter(requeues), [](const std::string& call) {
    return call.starts_with("scontrol ") && call.find(" requeue") != std::string::npos;
  });
  if (status != 75)
    return expect(requeues.empty(), format("a run of which `lockstep status` says {} was requeued", status),
                  "requeue only a run that can continue: 0 is done, 1 failed, 4 stopped on request");
  expect(!requeues.empty(), "a run that stopped early (`lockstep status` exits with 75) was not requeued",
         "store the exit status at once and compare it with 75; `set -e` would end the script first");
  expect(requeues.front() == "scontrol requeue 4711",
         format("in job 4711 the script calls `{}` instead of `scontrol requeue 4711`", requeues.front()));
}

// with programs before the real ones on the PATH that only note how they were called
CHECK_OF("resume.3", attempt) {
  require_bash(attempt);
  check_directives(sbatch_words(attempt.text()));
  const auto programs = attempt.folder() + "/programs";
  make_stand_in(programs, "srun",
                "case \" $* \" in *\" status \"*) exit \"$STATE\" ;; esac\n[ \"$STATE\" = 0 ] || exit 143\n");
  make_stand_in(programs, "scontrol");
  make_stand_in(programs, "lockstep", "[ \"$1\" = status ] && exit \"$STATE\"\nexit 0\n");
  for (const int status : {75, 0, 1, 4}) {
    std::filesystem::remove(programs + "/calls");
    const auto ending = attempt.start(
        {"bash", attempt.path()},
        {"PATH=" + programs + ":/usr/local/bin:/usr/bin:/bin", format("STATE={}", status),
         "SLURM_JOB_ID=4711", "SLURM_JOBID=4711", "SLURM_NTASKS=2", "SLURM_SUBMIT_DIR=" + attempt.folder()});
    expect(ending.why == Why::left, "the script does not end");
    const auto calls = noted_calls(programs);
    check_status_calls(calls, check_training(calls));
    check_requeue(status, calls);
  }
}

// --- resume.4: the ranks that a process carries, and a sum with the same bits on any number of processes

constexpr size_t kNumbers = 32;  // of each rank, as main() has it

// of the ranks in order, each addition rounded to float
Row sum_in_order(int ranks) {
  Row sum;
  for (size_t i = 0; i < kNumbers; ++i) {
    float all = 0;
    for (int rank = 0; rank < ranks; ++rank) all += 1 / static_cast<float>(1 + i + static_cast<size_t>(rank));
    sum.push_back(all);
  }
  return sum;
}

CHECK_OF("resume.4", attempt) {
  for (const auto& [ranks, processes] : {std::pair(8, 2), std::pair(8, 3), std::pair(8, 5), std::pair(8, 8),
                                         std::pair(8, 1), std::pair(3, 5)}) {
    const auto named = format("{} ranks on {} process{}", ranks, processes, processes == 1 ? "" : "es");
    const auto run =
        attempt.run({.world = 1, .label = named, .args = {std::to_string(ranks), std::to_string(processes)}});
    const auto count = static_cast<size_t>(processes);
    const auto blocks = run.ranks[0].rows("carries", count), sums = run.ranks[0].rows("sum", count);
    Row all;
    for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
    expect(flat(blocks) == all,
           format("{}: the processes run the ranks {}, one after the other", named, shown(flat(blocks))),
           "run each rank once, in order: a sum that goes from process to process reaches each once");
    const auto by_size = [](const Row& a, const Row& b) { return a.size() < b.size(); };
    const auto [least, most] = std::minmax_element(blocks.begin(), blocks.end(), by_size);
    expect(most->size() - least->size() <= 1,
           format("{}: one process runs {} ranks, and another {}", named, most->size(), least->size()),
           "balance the ranks: all processes wait for the one with the most, so counts may differ by at most "
           "one");
    const auto wanted = sum_in_order(ranks);
    for (size_t process = 0; process < count; ++process) {
      const auto& sum = sums[process];
      expect(sum == wanted,
             format("{}: process {} has {} instead of {}", named, process, shown(sum), shown(wanted)),
             "add each rank's numbers once, and return the sum to all",
             {{near(sum, wanted, 1e-5), "the same except for the last bits",
               "add the ranks in the order ((0 + 1) + 2) + ... in floats, on any number of processes"}});
    }
  }
}

}  // namespace
}  // namespace lockstep::workshop
