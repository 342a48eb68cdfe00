// Chapter 8: checkpoints, time limits, requeue.
#include <algorithm>
#include <array>
#include <filesystem>
#include <regex>
#include <sstream>

#include "course/workshop/judge.h"
#include "course/workshop/judges/directives.h"
#include "course/workshop/judges/launched.h"
#include "course/workshop/judges/own_failure.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {
namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

constexpr double kEpochs = 4, kStopAfter = 2;

Row flat(const Rows& rows) {
  Row row;
  for (const auto& part : rows) row.insert(row.end(), part.begin(), part.end());
  return row;
}

Row numbers_from(double first, double end) {
  Row row;
  for (double number = first; number < end; ++number) row.push_back(number);
  return row;
}

void require_epochs(const RankRun& rank, const std::string& run, double first, double end) {
  const auto epochs = flat(rank.rows("epoch"));
  if (epochs == numbers_from(first, end)) return;
  const auto what = format("{} (rank {}) trains the epochs {}, and it is {}", run, rank.rank(),
                           epochs.empty() ? "none" : shown(epochs), shown(numbers_from(first, end)));
  if (!epochs.empty() && epochs.front() == 0 && first > 0)
    throw NotYet(what + ": it begins with epoch 0 again",
                 "who knows the epoch, and was it saved and loaded?");
  if (!epochs.empty() && epochs.front() == first - 1)
    throw NotYet(what + format(": the job as a whole has epoch {} twice", shown(first - 1)),
                 "which epoch does the sampler name at the moment when you save?");
  throw NotYet(what);
}

struct Part {
  const char* name;
  const char* what;
  const char* think;
};

constexpr std::array<Part, 4> kState = {{
    {"weights", "the weights", "is the model that is trained the one that is saved and loaded?"},
    {"momentum", "the optimiser's momentum", "what does SGD remember from one step to the next?"},
    {"rate", "the learning rate", "the schedule has counted epochs, and sets the rate by them"},
    {"random", "the random numbers (as a checksum)",
     "Dropout draws from them. Who sets them again after they were loaded?"},
}};

void require_state(const RankRun& stopped, const RankRun& resumed) {
  for (const auto& part : kState) {
    const double was = stopped.number("end: " + std::string(part.name));
    const double is = resumed.number("begin: " + std::string(part.name));
    if (was != is)
      throw NotYet(format("{} did not come back on rank {}: {} at the stop, {} where it goes on", part.what,
                          resumed.rank(), shown(was), shown(is)),
                   part.think);
  }
}

// the epochs after the stop, as the run had them that nobody stopped
void require_order(const RankRun& whole, const RankRun& resumed) {
  const auto all = whole.rows("order"), rest = resumed.rows("order");
  for (size_t i = 0; i < rest.size(); ++i) {
    const auto epoch = i + static_cast<size_t>(kStopAfter);
    if (epoch >= all.size() || rest[i] != all[epoch])
      throw NotYet(
          format("in epoch {} rank {} takes the samples {}, and without a stop {}: the order of the "
                 "samples is another epoch's",
                 epoch, resumed.rank(), shown(rest[i]), epoch < all.size() ? shown(all[epoch]) : "?"),
          "who shuffles by the epoch's number?");
  }
}

void require_rates(const RankRun& whole, const RankRun& resumed) {
  const auto all = flat(whole.rows("rate")), rest = flat(resumed.rows("rate"));
  for (size_t i = 0; i < rest.size(); ++i) {
    const auto epoch = i + static_cast<size_t>(kStopAfter);
    if (epoch < all.size() && rest[i] != all[epoch])
      throw NotYet(format("the learning rate of epoch {} is {} on rank {}, and {} without a stop", epoch,
                          shown(rest[i]), resumed.rank(), shown(all[epoch])),
                   "the schedule counts epochs: does it come back, too?");
  }
}

void require_same_bits(const RankRun& whole, const RankRun& resumed) {
  const auto wanted = flat(whole.rows("final")), is = flat(resumed.rows("final"));
  for (size_t i = 0; i < std::min(wanted.size(), is.size()); ++i) {
    if (wanted[i] != is[i])
      throw NotYet(format("at the end, weight {} of rank {} is {:.9g}, and {:.9g} without a stop", i,
                          resumed.rank(), is[i], wanted[i]),
                   "what else does the next step depend on?");
  }
  if (wanted.empty() || wanted.size() != is.size())
    throw NotYet(format("rank {} ends with {} weights, and {} without a stop", resumed.rank(), is.size(),
                        wanted.size()));
}

LOCKSTEP_JUDGE("resume.1", attempt) {
  const auto epochs = shown(kEpochs);
  const auto whole = attempt.run({.args = {"whole.pt", epochs}});
  for (const auto& rank : whole.ranks) require_epochs(rank, "the run that nobody stops", 0, kEpochs);
  const auto stopped = attempt.run({.args = {"halves.pt", epochs, shown(kStopAfter)}});
  for (const auto& rank : stopped.ranks) require_epochs(rank, "the run that is stopped", 0, kStopAfter);
  const auto resumed = attempt.run({.args = {"halves.pt", epochs}});
  for (size_t i = 0; i < resumed.ranks.size(); ++i) {
    const auto& rank = resumed.ranks[i];
    require_epochs(rank, "the run that goes on", kStopAfter, kEpochs);
    require_state(stopped.ranks[i], rank);
    require_order(whole.ranks[i], rank);
    require_rates(whole.ranks[i], rank);
    require_same_bits(whole.ranks[i], rank);
  }
}

// A signal to one rank, or to all.
struct Notice {
  static constexpr int kAll = -1, kNobody = 99;
  int world, who, when;
  bool comes() const { return who < world; }
  bool comes_to(int rank) const { return who == kAll || who == rank; }
};

constexpr int kSteps = 12;

std::string notice_words(const Notice& notice) {
  if (!notice.comes()) return format("with {} ranks and no signal, ", notice.world);
  const auto whom = notice.who == Notice::kAll ? "every rank" : format("rank {}", notice.who);
  return format("with {} ranks and a signal to {} during step {}, ", notice.world, whom, notice.when);
}

int steps_of(const RankRun& rank) {
  return static_cast<int>(rank.rows("step").size());
}

// what is wrong where nobody heard of a signal
[[noreturn]] void explain_deaf(const Notice& notice, const std::string& what) {
  if (notice.who == Notice::kAll)
    throw NotYet(what + ": every rank had the signal, and all went on", "what is the answer made of?");
  if (notice.who == 0)
    throw NotYet(what + ": all stop only where each rank had the signal itself",
                 "is one rank enough to stop all of them?");
  throw NotYet(what + ": only rank 0 was asked", "a signal may come to any rank");
}

// each rank has stopped after the step of the signal, or gone to the end
void judge_end(const Notice& notice, const RankRun& rank) {
  const int wanted = notice.comes() ? notice.when : kSteps, steps = steps_of(rank);
  if (steps == wanted && rank.has("saved")) return;
  const auto what =
      notice_words(notice) + format("rank {} made {} steps, and {} are right", rank.rank(), steps, wanted);
  if (!notice.comes())
    throw NotYet(what + ": it stopped, and nobody had a signal",
                 "what does a rank give that knows of nothing?");
  if (steps == kSteps) explain_deaf(notice, what);
  throw NotYet(what);
}

// some ranks waited for others that never came
[[noreturn]] void explain_failure(const Notice& notice, const Run& run) {
  for (const auto& rank : run.ranks) {
    if (!rank.has("stopped")) continue;
    const auto what = notice_words(notice) + format("rank {} ", rank.rank());
    throw NotYet(
        what +
            "stopped and left the others alone: they waited for it in their next all-reduce, until they "
            "gave up; nobody saved",
        "a rank that knows something has to tell the others before it acts, in a call that all of them "
        "make in every step");
  }
  throw NotYet(notice_words(notice) + "the ranks waited for each other",
               "does every rank make the same calls?");
}

bool all_well(const Run& run) {
  return std::all_of(run.ranks.begin(), run.ranks.end(),
                     [](const RankRun& rank) { return rank.ending().is_well(); });
}

void judge_notice(Attempt& attempt, const Notice& notice) {
  const auto run = attempt.run({.world = notice.world,
                                .args = {std::to_string(notice.who), std::to_string(notice.when)},
                                .settings = {"LOCKSTEP_TIMEOUT=4"},
                                .may_fail = notice.comes()});
  require_no_own_failure(run, attempt.folder());
  if (!all_well(run)) explain_failure(notice, run);
  for (const auto& rank : run.ranks) judge_end(notice, rank);
}

// in this order each tells one kind of mistake from the next
LOCKSTEP_JUDGE("resume.2", attempt) {
  judge_notice(attempt, {.world = 2, .who = Notice::kNobody, .when = 1});
  judge_notice(attempt, {.world = 2, .who = Notice::kAll, .when = 4});
  judge_notice(attempt, {.world = 3, .who = 0, .when = 3});
  judge_notice(attempt, {.world = 2, .who = 1, .when = 5});
}

// The options of a script's #SBATCH lines: Slurm stops to look at the first command.
std::vector<std::string> sbatch_words(const std::string& script) {
  std::vector<std::string> found;
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

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// --open-mode=append, or --open-mode append; Slurm takes the last
std::string last_value(const std::vector<std::string>& words, const std::string& option) {
  std::string value;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i].starts_with(option + "=")) value = words[i].substr(option.size() + 1);
    if (words[i] == option && i + 1 < words.size()) value = words[i + 1];
  }
  return value;
}

// --requeue and --no-requeue: the last one counts
bool may_be_requeued(const std::vector<std::string>& words) {
  const auto last = std::find_if(words.rbegin(), words.rend(), [](const std::string& word) {
    return word == "--requeue" || word == "--no-requeue";
  });
  return last != words.rend() && *last == "--requeue";
}

void judge_signal(const std::string& signal) {
  constexpr int kLeast = 20, kMost = 300, kUnset = 60;
  std::smatch parts;
  if (!std::regex_match(signal, parts, std::regex("([BR]+:)?(SIG)?(USR[12]|TERM|10|12|15)(@([0-9]{1,5}))?")))
    throw NotYet(signal.empty()
                     ? "no --signal is asked for: the ranks are not told that the time is nearly up"
                     : format("--signal={} is nothing that Slurm would send", signal),
                 "--signal=NAME@SECONDS");
  if (parts[1].matched && parts[1].str().find('B') != std::string::npos)
    throw NotYet(format("--signal={} reaches the script alone, and the ranks hear nothing", signal),
                 "what does B: stand for in `man sbatch`?");
  const int seconds = parts[5].matched ? std::stoi(parts[5]) : kUnset;
  if (seconds < kLeast || seconds > kMost)
    throw NotYet(
        format("--signal={} comes {} s before the end", signal, seconds),
        "how long may a step and a checkpoint take, and how much of the ten minutes do you give away?");
}

// more time is not what is asked for
void judge_time(const std::vector<std::string>& words) {
  constexpr long kMost = 600;
  const auto long_name = last_value(words, "--time"),
             time = long_name.empty() ? last_value(words, "-t") : long_name;
  const auto seconds = slurm_seconds(time);
  if (!seconds || *seconds > kMost)
    throw NotYet(time.empty() ? "it says nothing of time any more: --time is missing"
                              : format("--time={} is not the 10 minutes that a job has", time),
                 "the training is to go on in the next ten minutes, and not to be given more");
}

void judge_directives(const std::vector<std::string>& words) {
  if (has(words, "--requeue") && !may_be_requeued(words))
    throw NotYet("--no-requeue stands behind --requeue: the last one counts");
  if (!may_be_requeued(words))
    throw NotYet(
        "Slurm is not told that the job may be queued again: --requeue is not among the #SBATCH lines "
        "before the first command");
  if (last_value(words, "--open-mode") != "append")
    throw NotYet("the second start opens the same log, and the log of the first ten minutes is lost",
                 "--open-mode has two values");
  judge_signal(last_value(words, "--signal"));
  judge_time(words);
}

constexpr const char* kJob = "4711";

// programs that only note how they were called, before the real ones on the PATH
void make_stand_ins(const std::string& folder) {
  make_stand_in(folder, "srun",
                "case \" $* \" in *\" status \"*) exit \"$STATE\" ;; esac\n[ \"$STATE\" = 0 ] || exit 143\n");
  make_stand_in(folder, "scontrol");
  make_stand_in(folder, "lockstep", "[ \"$1\" = status ] && exit \"$STATE\"\nexit 0\n");
}

std::vector<std::string> calls_of(const std::string& program, const std::vector<std::string>& calls) {
  std::vector<std::string> found;
  for (const auto& call : calls) {
    if (call.starts_with(program + " ")) found.push_back(call);
  }
  return found;
}

struct State {
  int status;
  const char* run;
};

// in the order in which they are tried
constexpr std::array<State, 4> kStates = {{{75, "that stopped early"},
                                           {0, "that is done"},
                                           {1, "that failed"},
                                           {4, "that somebody asked to stop"}}};

void judge_requeue(const State& state, const std::vector<std::string>& calls) {
  const bool wanted = state.status == 75;
  std::vector<std::string> requeues;
  for (const auto& call : calls) {
    if (call.find(" requeue") != std::string::npos) requeues.push_back(call);
  }
  if (wanted && requeues.empty())
    throw NotYet(
        "a run that stopped early (`lockstep status` leaves with 75) was not requeued",
        "is the status asked for, kept at once, and compared with 75? `set -e` ends a script before");
  if (!wanted && !requeues.empty())
    throw NotYet(format("a run {} (`lockstep status` leaves with {}) was requeued", state.run, state.status),
                 "which of the four wants to go on?");
  if (wanted && !(requeues.front() + " ").starts_with("scontrol requeue "))
    throw NotYet(format("`{}` does not put the job back into the queue to run", requeues.front()),
                 "scontrol requeue");
  if (wanted && requeues.front() != std::string("scontrol requeue ") + kJob)
    throw NotYet(
        format("Slurm has to be told which job: `{}` was called, in job {}", requeues.front(), kJob));
}

void judge_training(const std::vector<std::string>& calls) {
  std::vector<std::string> trainings;
  for (const auto& call : calls) {
    if (has(launch_of(call).program, "train")) trainings.push_back(call);
  }
  if (trainings.size() != 1)
    throw NotYet(format("the training was started {} times with srun, and once is right", trainings.size()));
  require_all_ranks(launch_of(trainings.front()), 2, 1);
  const bool resumes = trainings.front().find(" --resume") != std::string::npos;
  const bool as_it_finds = trainings.front().find("--resume auto") != std::string::npos ||
                           trainings.front().find("--resume=auto") != std::string::npos;
  if (resumes && !as_it_finds)
    throw NotYet("the first time there is no run to resume, and the training ends with an error",
                 "which value of --resume goes on with what is there, or begins?");
  if (!resumes)
    throw NotYet("the second time the training begins again, in a new folder",
                 "which option of `lockstep train` "
                 "goes on with what is there?");
}

// --set run.name=NAME of the last such word
std::string trained_run(const std::vector<std::string>& words) {
  const std::string sign = "run.name=";
  std::string name;
  for (const auto& word : words) {
    if (const auto at = word.find(sign); at != std::string::npos) name = word.substr(at + sign.size());
  }
  return name;
}

// `lockstep status runs/NAME/`: the last word, as a folder on the way may have a space
std::filesystem::path asked_run(const std::string& call) {
  std::string folder;
  for (const auto& word : launch_of(call).program) {
    if (!word.starts_with("-")) folder = word;
  }
  return (std::filesystem::path(folder) / "").parent_path();
}

bool asks_for_the_state(const std::string& call) {
  const auto program = launch_of(call).program;
  return program.size() > 1 && program[1] == "status";
}

// the state from before the training says nothing of it
void judge_order(const std::vector<std::string>& calls) {
  const auto training = std::find_if(calls.begin(), calls.end(), [](const std::string& call) {
    return call.starts_with("srun ") && has(launch_of(call).program, "train");
  });
  const auto is_before = [&](auto is) { return std::find_if(calls.begin(), training, is) != training; };
  if (is_before([](const std::string& call) { return call.starts_with("scontrol requeue"); }))
    throw NotYet("the job is requeued before it has trained",
                 "what has become of the run is known at the end");
  if (is_before(asks_for_the_state) && std::none_of(training, calls.end(), asks_for_the_state))
    throw NotYet("the state is asked for before the training, and not after it",
                 "what has become of the run is known at the end");
}

void judge_name(const std::vector<std::string>& calls) {
  const auto trained = trained_run(launch_of(calls_of("srun", calls).front()).program);
  for (const auto& call : calls_of("lockstep status", calls)) {
    const auto run = asked_run(call), folder = run.parent_path();
    if (const auto asked = run.filename().string(); asked != trained)
      throw NotYet(format("the run that is trained is `{}`, and the state that is asked for is that of `{}`",
                          trained, asked),
                   "--set run.name=NAME makes runs/NAME");
    if (folder.empty())
      throw NotYet(format("there is no folder `{}`: the run lies in runs/{}", trained, trained),
                   "the folder is asked for as it is seen from here");
  }
}

void try_script(Attempt& attempt, const State& state) {
  const auto programs = attempt.folder() + "/programs";
  make_stand_ins(programs);
  forget_calls(programs);
  const auto ending =
      attempt.start({"bash", attempt.path()},
                    {"PATH=" + programs + ":/usr/local/bin:/usr/bin:/bin", format("STATE={}", state.status),
                     format("SLURM_JOB_ID={}", kJob), format("SLURM_JOBID={}", kJob), "SLURM_NTASKS=2",
                     "SLURM_SUBMIT_DIR=" + attempt.folder()});
  if (ending.why != Why::left) throw NotYet("the script does not come to an end");
  const auto calls = noted_calls(programs);
  judge_training(calls_of("srun", calls));
  judge_order(calls);
  judge_name(calls);
  judge_requeue(state, calls_of("scontrol", calls));
}

LOCKSTEP_JUDGE("resume.3", attempt) {
  const auto syntax = attempt.start({"bash", "-n", attempt.path()}, {});
  if (!syntax.is_well()) throw NotYet("bash does not understand it:\n" + syntax.printed);
  judge_directives(sbatch_words(attempt.text()));
  for (const auto& state : kStates) try_script(attempt, state);
}

}  // namespace
}  // namespace lockstep::workshop
