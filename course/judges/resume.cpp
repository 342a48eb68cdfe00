// Chapter 8: checkpoints, time limits, requeue.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <regex>
#include <sstream>

#include "course/judges/shared.h"
#include "lockstep/base/format.h"

namespace lockstep::workshop {
namespace {

// --- resume.1: a run that stops after 2 of 4 epochs, and goes on

constexpr size_t kEpochs = 4, kStopAfter = 2;

void require_epochs(const RankRun& rank, const std::string& run, size_t first, size_t end) {
  const auto epochs = flat(rank.rows("epoch"));
  Row wanted;
  for (auto epoch = first; epoch < end; ++epoch) wanted.push_back(static_cast<double>(epoch));
  const bool any = !epochs.empty();
  expect(epochs == wanted,
         format("{} (rank {}) trains the epochs {}, and it is {}", run, rank.rank(),
                any ? shown(epochs) : "none", shown(wanted)),
         {{any && epochs[0] == 0 && first > 0, "it begins with epoch 0 again",
           "who knows the epoch, and was it saved and loaded?"},
          {any && epochs[0] == wanted[0] - 1,
           format("the job as a whole has epoch {} twice", shown(wanted[0] - 1)),
           "which epoch does the sampler name at the moment when you save?"}});
}

constexpr const char* kState[][3] = {
    {"weights", "the weights", "is the model that is trained the one that is saved and loaded?"},
    {"momentum", "the optimiser's momentum", "what does SGD remember from one step to the next?"},
    {"rate", "the learning rate", "the schedule has counted epochs, and sets the rate by them"},
    {"random", "the random numbers (as a checksum)",
     "Dropout draws from them. Who sets them again after they were loaded?"},
};

// the rows of the epochs after the stop, as the run had them that nobody stopped
void require_rows(const RankRun& whole, const RankRun& resumed, const std::string& name,
                  const std::string& what, const std::string& think) {
  const auto all = whole.rows(name), rest = resumed.rows(name);
  for (size_t epoch = kStopAfter; epoch < kStopAfter + rest.size(); ++epoch) {
    const auto wanted = epoch < all.size() ? all[epoch] : Row{}, &is = rest[epoch - kStopAfter];
    expect(is == wanted,
           format("{} of epoch {} is {} on rank {}, and {} without a stop", what, epoch, shown(is),
                  resumed.rank(), shown(wanted)),
           {}, think);
  }
}

void judge_resumed(const RankRun& whole, const RankRun& stopped, const RankRun& resumed) {
  require_epochs(resumed, "the run that goes on", kStopAfter, kEpochs);
  for (const auto& [name, what, think] : kState) {
    const double was = stopped.number(format("end: {}", name)),
                 is = resumed.number(format("begin: {}", name));
    expect(was == is,
           format("{} did not come back on rank {}: {} at the stop, {} where it goes on", what,
                  resumed.rank(), shown(was), shown(is)),
           {}, think);
  }
  require_rows(whole, resumed, "order", "the order of the samples", "who shuffles by the epoch's number?");
  require_rows(whole, resumed, "rate", "the learning rate",
               "the schedule counts epochs: does it come back, too?");
  const auto wanted = flat(whole.rows("final")), is = flat(resumed.rows("final"));
  expect(!wanted.empty() && is == wanted,
         format("at the end, the weights of rank {} are {}, and {} without a stop: other bits",
                resumed.rank(), shown(is), shown(wanted)),
         {}, "what else does the next step depend on?");
}

LOCKSTEP_JUDGE("resume.1", attempt) {
  const auto whole = attempt.run({.args = {"whole.pt", "4"}});
  for (const auto& rank : whole.ranks) require_epochs(rank, "the run that nobody stops", 0, kEpochs);
  const auto stopped = attempt.run({.args = {"halves.pt", "4", "2"}});
  for (const auto& rank : stopped.ranks) require_epochs(rank, "the run that is stopped", 0, kStopAfter);
  const auto resumed = attempt.run({.args = {"halves.pt", "4"}});
  for (size_t i = 0; i < resumed.ranks.size(); ++i)
    judge_resumed(whole.ranks[i], stopped.ranks[i], resumed.ranks[i]);
}

// --- resume.2: 12 steps, and a signal to one rank, or to all, during one of them

struct Notice {
  static constexpr int kAll = -1, kNobody = 99;
  int world, who, when;
};

constexpr size_t kSteps = 12;

void judge_notice(Attempt& attempt, const Notice& notice) {
  const bool comes = notice.who < notice.world;
  const auto run = attempt.run({.world = notice.world,
                                .args = {std::to_string(notice.who), std::to_string(notice.when)},
                                .settings = {"LOCKSTEP_TIMEOUT=4"},
                                .may_fail = comes});
  require_no_own_failure(run, attempt.folder());
  const auto whom = notice.who == Notice::kAll ? "every rank" : format("rank {}", notice.who);
  const auto when =
      comes ? format("with {} ranks and a signal to {} during step {}, ", notice.world, whom, notice.when)
            : format("with {} ranks and no signal, ", notice.world);
  const bool well = std::all_of(run.ranks.begin(), run.ranks.end(),
                                [](const RankRun& rank) { return rank.ending().is_well(); });
  for (const auto& rank : run.ranks)
    expect(well || !rank.has("stopped"),
           format("{}rank {} stopped and left the others alone: they waited for it in their next all-reduce, "
                  "until they gave up; nobody saved",
                  when, rank.rank()),
           {},
           "a rank that knows something has to tell the others before it acts, in a call that all of them "
           "make in "
           "every step");
  expect(well, when + "the ranks waited for each other", {}, "does every rank make the same calls?");
  const auto wanted = comes ? static_cast<size_t>(notice.when) : kSteps;
  for (const auto& rank : run.ranks) {
    const auto steps = rank.rows("step").size();
    const bool deaf = comes && steps == kSteps;
    expect(steps == wanted && rank.has("saved"),
           format("{}rank {} made {} steps, and {} are right", when, rank.rank(), steps, wanted),
           {{!comes, "it stopped, and nobody had a signal", "what does a rank give that knows of nothing?"},
            {deaf && notice.who == Notice::kAll, "every rank had the signal, and all went on",
             "what is the answer made of?"},
            {deaf && notice.who == 0, "all stop only where each rank had the signal itself",
             "is one rank enough to stop all of them?"},
            {deaf, "only rank 0 was asked", "a signal may come to any rank"}});
  }
}

// in this order each tells one kind of mistake from the next
LOCKSTEP_JUDGE("resume.2", attempt) {
  judge_notice(attempt, {.world = 2, .who = Notice::kNobody, .when = 1});
  judge_notice(attempt, {.world = 2, .who = Notice::kAll, .when = 4});
  judge_notice(attempt, {.world = 3, .who = 0, .when = 3});
  judge_notice(attempt, {.world = 2, .who = 1, .when = 5});
}

// --- resume.3: a job script

using Words = std::vector<std::string>;

// The options of a script's #SBATCH lines: Slurm stops to look at the first command.
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

bool has(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
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

void judge_signal(const std::string& signal) {
  std::smatch parts;
  const std::regex form("([BR]+:)?(SIG)?(USR[12]|TERM|10|12|15)(@([0-9]{1,5}))?");
  expect(std::regex_match(signal, parts, form),
         signal.empty() ? "no --signal is asked for: the ranks are not told that the time is nearly up"
                        : format("--signal={} is nothing that Slurm would send", signal),
         {}, "--signal=NAME@SECONDS");
  expect(parts[1].str().find('B') == std::string::npos,
         format("--signal={} reaches the script alone, and the ranks hear nothing", signal), {},
         "what does B: stand for in `man sbatch`?");
  const int seconds = parts[5].matched ? std::stoi(parts[5]) : 60;
  expect(seconds >= 20 && seconds <= 300, format("--signal={} comes {} s before the end", signal, seconds),
         {}, "how long may a step and a checkpoint take, and how much of the ten minutes do you give away?");
}

void judge_directives(const Words& words) {
  // --requeue and --no-requeue: the last one counts
  const auto last = std::find_if(words.rbegin(), words.rend(), [](const std::string& word) {
    return word == "--requeue" || word == "--no-requeue";
  });
  expect(last != words.rend() && *last == "--requeue",
         "Slurm is not told that the job may be queued again: --requeue is not among the #SBATCH lines "
         "before the "
         "first command",
         {{has(words, "--requeue"), "--no-requeue stands behind it, and the last one counts"}});
  expect(last_value(words, "--open-mode") == "append",
         "the second start opens the same log, and the log of the first ten minutes is lost", {},
         "--open-mode has two values");
  judge_signal(last_value(words, "--signal"));
  const auto long_name = last_value(words, "--time"),
             time = long_name.empty() ? last_value(words, "-t") : long_name;
  const auto seconds = slurm_seconds(time);
  expect(seconds && *seconds <= 600,
         time.empty() ? "it says nothing of time any more: --time is missing"
                      : format("--time={} is not the 10 minutes that a job has", time),
         {}, "the training is to go on in the next ten minutes, and not to be given more");
}

Words calls_of(const std::string& program, const Words& calls) {
  Words found;
  std::copy_if(calls.begin(), calls.end(), std::back_inserter(found),
               [&](const std::string& call) { return call.starts_with(program + " "); });
  return found;
}

bool trains(const std::string& call) {
  return call.starts_with("srun ") && has(launch_of(call).program, "train");
}

bool asks_for_the_state(const std::string& call) {
  const auto program = launch_of(call).program;
  return program.size() > 1 && program[1] == "status";
}

void judge_training(const Words& calls) {
  const auto count = std::count_if(calls.begin(), calls.end(), trains);
  expect(count == 1, format("the training was started {} times with srun, and once is right", count));
  const auto training = std::find_if(calls.begin(), calls.end(), trains);
  const auto holds = [&](const char* words) { return training->find(words) != std::string::npos; };
  require_all_ranks(launch_of(*training), 2, 1);
  expect(holds(" --resume"), "the second time the training begins again, in a new folder", {},
         "which option of `lockstep train` goes on with what is there?");
  expect(holds("--resume auto") || holds("--resume=auto"),
         "the first time there is no run to resume, and the training ends with an error", {},
         "which value of --resume goes on with what is there, or begins?");
  // the state from before the training says nothing of it
  constexpr const char* kAtTheEnd = "what has become of the run is known at the end";
  expect(std::none_of(calls.begin(), training,
                      [](const std::string& call) { return call.starts_with("scontrol requeue"); }),
         "the job is requeued before it has trained", {}, kAtTheEnd);
  expect(std::none_of(calls.begin(), training, asks_for_the_state) ||
             std::any_of(training, calls.end(), asks_for_the_state),
         "the state is asked for before the training, and not after it", {}, kAtTheEnd);
}

// --set run.name=NAME of the training, and `lockstep status runs/NAME/`
void judge_name(const Words& calls) {
  const std::string sign = "run.name=";
  std::string trained;
  for (const auto& word : launch_of(calls_of("srun", calls).front()).program)
    if (const auto at = word.find(sign); at != std::string::npos) trained = word.substr(at + sign.size());
  for (const auto& call : calls_of("lockstep status", calls)) {
    std::string last;  // word: a folder on the way may have a space
    for (const auto& word : launch_of(call).program)
      if (!word.starts_with("-")) last = word;
    const auto run = (std::filesystem::path(last) / "").parent_path();
    expect(run.filename() == trained,
           format("the run that is trained is `{}`, and the state that is asked for is that of `{}`", trained,
                  run.filename().string()),
           {}, "--set run.name=NAME makes runs/NAME");
    expect(run.has_parent_path(),
           format("there is no folder `{}`: the run lies in runs/{}", trained, trained), {},
           "the folder is asked for as it is seen from here");
  }
}

struct State {
  int status;
  const char* run;
};

void judge_requeue(const State& state, const Words& calls) {
  const auto asks = [](const std::string& call) { return call.find(" requeue") != std::string::npos; };
  const auto found = std::find_if(calls.begin(), calls.end(), asks);
  if (state.status != 75) {
    expect(found == calls.end(),
           format("a run {} (`lockstep status` leaves with {}) was requeued", state.run, state.status), {},
           "which of the four wants to go on?");
    return;
  }
  expect(found != calls.end(), "a run that stopped early (`lockstep status` leaves with 75) was not requeued",
         {}, "is the status asked for, kept at once, and compared with 75? `set -e` ends a script before");
  expect((*found + " ").starts_with("scontrol requeue "),
         format("`{}` does not put the job back into the queue to run", *found), {}, "scontrol requeue");
  expect(*found == "scontrol requeue 4711",
         format("Slurm has to be told which job: `{}` was called, in job 4711", *found));
}

// with programs before the real ones on the PATH that only note how they were called
void try_script(Attempt& attempt, const State& state) {
  const auto programs = attempt.folder() + "/programs";
  make_stand_in(programs, "srun",
                "case \" $* \" in *\" status \"*) exit \"$STATE\" ;; esac\n[ \"$STATE\" = 0 ] || exit 143\n");
  make_stand_in(programs, "scontrol");
  make_stand_in(programs, "lockstep", "[ \"$1\" = status ] && exit \"$STATE\"\nexit 0\n");
  forget_calls(programs);
  const auto ending = attempt.start(
      {"bash", attempt.path()},
      {"PATH=" + programs + ":/usr/local/bin:/usr/bin:/bin", format("STATE={}", state.status),
       "SLURM_JOB_ID=4711", "SLURM_JOBID=4711", "SLURM_NTASKS=2", "SLURM_SUBMIT_DIR=" + attempt.folder()});
  expect(ending.why == Why::left, "the script does not come to an end");
  const auto calls = noted_calls(programs);
  judge_training(calls);
  judge_name(calls);
  judge_requeue(state, calls_of("scontrol", calls));
}

LOCKSTEP_JUDGE("resume.3", attempt) {
  const auto syntax = attempt.start({"bash", "-n", attempt.path()}, {});
  expect(syntax.is_well(), "bash does not understand it:\n" + syntax.printed);
  judge_directives(sbatch_words(attempt.text()));
  const State states[] = {{75, "that stopped early"},
                          {0, "that is done"},
                          {1, "that failed"},
                          {4, "that somebody asked to stop"}};
  for (const auto& state : states) try_script(attempt, state);
}

}  // namespace
}  // namespace lockstep::workshop
