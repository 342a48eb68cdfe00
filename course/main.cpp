// lockstep check and lockstep workshop; `lockstep` executes this program for them. check builds, runs and
// checks an exercise, or shows the progress. workshop copies the course to a learner's folder, prepares it
// for a class and proves the exercises.
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <optional>

#include "course/workshop/attempt.h"
#include "course/workshop/check.h"
#include "course/workshop/compile.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/identify.h"
#include "lockstep/launch/process/leave.h"
#include "lockstep/launch/process/spawn_ranks.h"
#include "lockstep/launch/process/terminal.h"
#include "lockstep/launch/variables.h"
#include "trainer/cli/failure.h"
#include "trainer/cli/options.h"

namespace lockstep::workshop {
namespace {

using cli::Options;
using cli::UsageError;
using Words = std::vector<std::string>;

// Below mpirun or srun one process does the work and prints. False where a launcher started others and one of
// them is the first. Ends the process with status 2 where nobody launched it and variables left in the shell
// say that it is a rank above 0.
bool is_first_of_launched() {
  auto environment = launch::current_environment();
  const auto [rank, world, one_host] = launch::rank_by_environment(environment);
  if (rank == 0 || launch::is_set(environment, "TORCHELASTIC_RUN_ID")) return rank == 0;
  for (const char* name : {"RANK", "WORLD_SIZE"}) environment.erase(name);
  if (launch::find_launcher(environment, "auto")) return launch::rank_by_environment(environment).rank == 0;
  // not thrown: rank 0 speaks of such an error, and there is none
  log::error(describe(InputError(format("this shell has the variables of rank {} of {}", rank, world),
                                 "RANK, WORLD_SIZE", "unset RANK WORLD_SIZE")));
  std::exit(kBadInput);
}

struct CheckArguments {
  std::string name;
  bool hint = false, solution = false, reset = false, watch = false, all = false;
};

bool parse(const Words& args, CheckArguments& asked) {
  Options options("check", "builds and checks an exercise of the course, and shows what is not right yet",
                  {"lockstep check", "lockstep check groups.1", "lockstep check groups.1 --hint",
                   "lockstep check groups.1 --watch"});
  options.positional("EXERCISE", asked.name, "one exercise; if omitted, show your progress", false);
  options.flag("hint", asked.hint, "print the next hint; the last one is nearly the solution");
  options.flag("solution", asked.solution, "print the solution");
  options.flag("reset", asked.reset, "restore the exercise file; yours is kept as .old");
  options.flag(
      "watch", asked.watch,
      "check again whenever you save the exercise (without EXERCISE: any exercise); stop with Ctrl-C");
  options.flag("all", asked.all, "check every exercise that you have started");
  return options.parse(args);
}

void require_sense(const CheckArguments& asked) {
  const int wanted = asked.hint + asked.solution + asked.reset + asked.watch + asked.all;
  if (wanted > 1)
    throw UsageError("--hint, --solution, --reset, --watch and --all cannot be combined", "lockstep check",
                     "use one of them");
  if (asked.name.empty() && (asked.hint || asked.solution || asked.reset))
    throw UsageError("missing argument EXERCISE", "lockstep check", "run lockstep check EXERCISE --hint");
  if (!asked.name.empty() && asked.all)
    throw UsageError("--all takes no EXERCISE", "lockstep check", "run lockstep check --all");
}

bool runs_programs(const CheckArguments& asked) {
  return asked.all || asked.watch || (!asked.name.empty() && !(asked.hint || asked.solution || asked.reset));
}

int check_one(Folder& folder, const CheckArguments& asked) {
  const auto exercise = find_exercise(asked.name);
  if (asked.hint) output::line(folder.next_hint(exercise));
  if (asked.solution) output::line(folder.show_solution(exercise));
  if (asked.reset) output::line(folder.reset(exercise));
  if (asked.watch) workshop::watch(folder, exercise);
  if (asked.hint || asked.solution || asked.reset) return kDone;
  return workshop::check(folder, exercise).passed ? kDone : kFailed;
}

int carry_out(const CheckArguments& asked) {
  auto folder = Folder::find(".");
  if (!asked.name.empty()) return check_one(folder, asked);
  if (asked.watch) watch(folder, std::nullopt);
  if (asked.all) return check_all(folder) ? kDone : kFailed;
  print_overview(folder);
  return kDone;
}

int run_check(const Words& args) {
  CheckArguments asked;
  if (!parse(args, asked)) return kDone;
  require_sense(asked);
  if (!is_first_of_launched()) return kDone;
  if (runs_programs(asked)) note_interruptions();
  try {
    return carry_out(asked);
  } catch (const Interrupted& word) {
    say("\nstopped", TextStyle::faint);
    if (asked.watch && word.number() == SIGINT) return kDone;
    std::signal(word.number(), SIG_DFL);
    return std::raise(word.number());
  }
}

struct WorkshopOptions {
  bool as_json = false;
  int64_t wrong = std::numeric_limits<int64_t>::max();
};

// the one word that an action wants
const std::string& only(const Words& words, const std::string& name, const std::string& action) {
  if (words.size() != 1)
    throw UsageError("missing argument " + name, "lockstep workshop",
                     format("run lockstep workshop {} {}", action, name));
  return words.front();
}

int init(const Words& words, const WorkshopOptions&) {
  const auto course = Folder::init(only(words, "DIR", "init"));
  output::line(
      format("{}\nBegin with {}/README.md; cd there, then run lockstep check to see what comes next.",
             course.path(), course.path()));
  return kDone;
}

int prepare(const Words&, const WorkshopOptions&) {
  const bool is_there = precompiled_folder().has_value();
  if (!is_there) log::info("this takes 30 s on a free core, and minutes on a busy machine");
  const auto begin = std::chrono::steady_clock::now();
  output::line(precompile());
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  log::info(is_there ? "already there" : format("ready, after {:.0f} s", took.count()));
  return kDone;
}

// for authors of an exercise: every answer that its master file has
int prove(const Words& words, const WorkshopOptions& wishes) {
  const auto exercise = find_exercise(only(words, "EXERCISE", "prove"));
  const base::TemporaryFolder folder;
  return workshop::prove(exercise, folder.path(), static_cast<size_t>(wishes.wrong)) ? kDone : kFailed;
}

// a program of the course or the learner's own, without a check
int build(const Words& words, const WorkshopOptions&) {
  const auto& file = only(words, "FILE.cpp", "build");
  const auto source = std::filesystem::absolute(file);
  if (!std::filesystem::is_regular_file(source)) throw InputError("there is no such file", file);
  const auto program = std::filesystem::path(Folder::find(".").build()) / source.stem();
  const base::TemporaryFolder scratch;
  try {
    compile(source, program, scratch.path());
  } catch (const CheckFailure& objection) {
    throw InputError(objection.what(), file, objection.think());
  }
  output::line(std::filesystem::relative(program).string());
  return kDone;
}

int progress(const Words& folders, const WorkshopOptions& wishes) {
  if (folders.empty())
    throw UsageError("missing argument DIR", "lockstep workshop", "run lockstep workshop progress DIR...");
  wishes.as_json ? print_class_json(folders) : print_class(folders);
  return kDone;
}

struct WorkshopAction {
  const char* name;
  const char* form;
  const char* help;
  int (*run)(const Words& words, const WorkshopOptions& wishes);
};
constexpr WorkshopAction kWorkshopActions[] = {
    {"init", "init DIR", "copies the course to a learner's folder, and restores missing files", init},
    {"build", "build FILE.cpp", "builds a program of the course or your own, without checking it", build},
    {"prepare", "prepare", "once per installation: precompiles the header, to make checks faster", prepare},
    {"prove", "prove EXERCISE", "for authors: tries every known right and wrong answer", prove},
    {"progress", "progress DIR...", "for instructors: shows the progress of the learners", progress}};

int act(const std::string& action, const Words& words, const WorkshopOptions& wishes) {
  for (const auto& row : kWorkshopActions)
    if (action == row.name) return row.run(words, wishes);
  throw UsageError(format("unknown action '{}'", base::printable(action)), "lockstep workshop",
                   "use init DIR, build FILE, prepare, prove EXERCISE, or progress DIR...");
}
int run_workshop(const Words& args) {
  Words words;
  WorkshopOptions wishes;
  Options options("workshop", "copies the course to a folder and prepares it for a class",
                  {"lockstep workshop init my-course", "lockstep workshop build programs/single_process.cpp",
                   "lockstep workshop prepare", "lockstep workshop progress /home/*/my-course"});
  options.positional("ACTION [DIR...]", words, "the action and its arguments");
  options.flag("json", wishes.as_json, "for progress: print every exercise of every folder as JSON");
  options.add("wrong", wishes.wrong, "N", "for prove: try only the first N wrong answers");
  for (const auto& row : kWorkshopActions) options.note("actions", row.form, row.help);
  if (!options.parse(args)) return kDone;
  if (!is_first_of_launched()) return kDone;
  try {
    return act(words.front(), {words.begin() + 1, words.end()}, wishes);
  } catch (const Interrupted& word) {
    std::signal(word.number(), SIG_DFL);
    return std::raise(word.number());
  }
}

int run(const Words& args, bool& alike) {
  alike = true;
  log::set_colour(launch::has_colour(STDERR_FILENO));
  const auto command = args.empty() ? "" : args.front();
  if (command != "check" && command != "workshop")
    throw UsageError("this is a part of lockstep", "lockstep-workshop",
                     "lockstep check, or lockstep workshop");
  const Words rest(args.begin() + 1, args.end());
  return cli::flushed(command == "check" ? run_check(rest) : run_workshop(rest));
}

}  // namespace
}  // namespace lockstep::workshop

// LOCKSTEP_TRACE is for the program with libtorch.
std::string lockstep::cli::last_trace() {
  return {};
}

int main(int argc, char** argv) {
  lockstep::launch::end_with_spawner();
  lockstep::base::open_standard_descriptors();
  lockstep::cli::exit_on_uncaught_errors();
  std::signal(SIGPIPE, SIG_IGN);
  return lockstep::cli::guarded([&](bool& alike) {
    return lockstep::workshop::run({argv + 1, argv + argc}, alike);
  });
}
