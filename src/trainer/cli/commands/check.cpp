// lockstep check: an exercise of the course, built, run and judged; without one, how far the learner is.
#include "course/workshop/check.h"

#include <csignal>
#include <filesystem>
#include <optional>

#include "course/workshop/course.h"
#include "course/workshop/overview.h"
#include "course/workshop/process/guard.h"
#include "course/workshop/process/interruption.h"
#include "course/workshop/text_style.h"
#include "course/workshop/watch.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "trainer/cli/failure.h"
#include "trainer/cli/first_of_launched.h"
#include "trainer/cli/options.h"

namespace lockstep::cli {
namespace {

struct CheckArguments {
  std::string name;
  bool hint = false, solution = false, reset = false, watch = false, all = false;
};

bool parse(const std::vector<std::string>& args, CheckArguments& asked) {
  Options options("check", "an exercise of the course: builds it, runs it, says what is not right yet",
                  {"lockstep check", "lockstep check groups.1", "lockstep check groups.1 --hint",
                   "lockstep check groups.1 --watch"});
  options.positional("EXERCISE", asked.name, "one exercise; without it, how far you have come", false);
  options.flag("hint", asked.hint, "the next hint instead, from a question to nearly all of it");
  options.flag("solution", asked.solution, "the solution instead");
  options.flag("reset", asked.reset,
               "puts the exercise back as you found it; yours is kept beside it, as .old");
  options.flag("watch", asked.watch,
               "checks again at every save, until Ctrl-C; without EXERCISE, what is saved");
  options.flag("all", asked.all, "checks everything that you have begun");
  return options.parse(args);
}

void require_sense(const CheckArguments& asked) {
  const int wanted = asked.hint + asked.solution + asked.reset + asked.watch + asked.all;
  if (wanted > 1) throw UsageError("options conflict", "lockstep check", "one option at a time");
  if (asked.name.empty() && (asked.hint || asked.solution || asked.reset))
    throw UsageError("missing EXERCISE", "lockstep check", "lockstep check EXERCISE --hint");
  if (!asked.name.empty() && asked.all)
    throw UsageError("--all is of all exercises", "lockstep check", "lockstep check --all");
}

std::string reset(const workshop::Folder& folder, const workshop::Master& exercise) {
  const auto file = folder.file_of(exercise);
  const bool had_one = std::filesystem::exists(file);
  folder.reset(exercise);
  const auto kept = std::filesystem::path(file).filename().string() + ".old";
  return format("{} is as you found it", file) + (had_one ? format("; yours is now {}", kept) : "");
}

bool runs_programs(const CheckArguments& asked) {
  return asked.all || asked.watch || (!asked.name.empty() && !(asked.hint || asked.solution || asked.reset));
}

int check_one(workshop::Folder& folder, const CheckArguments& asked) {
  const auto exercise = workshop::find_exercise(asked.name);
  if (asked.hint) output::line(workshop::next_hint(folder, exercise));
  if (asked.solution) output::line(workshop::show_solution(folder, exercise));
  if (asked.reset) output::line(reset(folder, exercise));
  if (asked.watch) workshop::watch(folder, exercise);
  if (asked.hint || asked.solution || asked.reset) return kDone;
  return workshop::check(folder, exercise).passed ? kDone : kFailed;
}

int carry_out(const CheckArguments& asked) {
  auto folder = workshop::Folder::find(".");
  if (!asked.name.empty()) return check_one(folder, asked);
  if (asked.watch) workshop::watch(folder, std::nullopt);
  if (asked.all) return workshop::check_all(folder) ? kDone : kFailed;
  workshop::print_overview(folder);
  return kDone;
}

}  // namespace

int run_check(const std::vector<std::string>& args) {
  CheckArguments asked;
  if (!parse(args, asked)) return kDone;
  require_sense(asked);
  if (!is_first_of_launched()) return kDone;
  std::optional<workshop::Interruption> interruption;
  if (runs_programs(asked)) {
    workshop::stand_guard();
    interruption.emplace();  // for all of it: between two programs too, an interruption is told and noted
  }
  try {
    return carry_out(asked);
  } catch (const workshop::Interrupted& word) {
    workshop::say("\nstopped", workshop::TextStyle::faint);
    if (asked.watch && word.number() == SIGINT) return kDone;
    std::signal(word.number(), SIG_DFL);
    return std::raise(word.number());
  }
}

}  // namespace lockstep::cli
