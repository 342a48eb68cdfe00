#include "course/workshop/check.h"

#include <algorithm>
#include <ctime>
#include <filesystem>

#include "course/workshop/check_slot.h"
#include "course/workshop/course.h"
#include "course/workshop/emptied.h"
#include "course/workshop/overview.h"
#include "course/workshop/printed.h"
#include "course/workshop/text_style.h"
#include "course/workshop/trial.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"

namespace lockstep::workshop {
namespace fs = std::filesystem;
namespace {

std::string now() {
  const auto seconds = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&seconds, &local);
  return format("{:04}-{:02}-{:02} {:02}:{:02}", local.tm_year + 1900, local.tm_mon + 1, local.tm_mday,
                local.tm_hour, local.tm_min);
}

void say_step(const std::string& what) {
  say("  " + what, TextStyle::faint);
}

void require_there(const Folder& folder, const Master& exercise) {
  const auto file = folder.file_of(exercise);
  if (fs::exists(file)) return;
  throw InputError("your file of this exercise is not there", file,
                   format("lockstep check {} --reset puts it back as you found it", exercise.name()));
}

// a verdict is worth more than its record: on a full disk it is told all the same
void note_try(Folder& folder, const Master& exercise, bool passed) {
  try {
    folder.change(exercise.name(), [&](ExerciseProgress& progress) {
      ++progress.tries;
      progress.last = now();
      if (passed && progress.solved.empty()) progress.solved = progress.last;
    });
  } catch (const Error& error) {
    log::warning("this is not noted: " + describe(error));
  }
}

Verdict try_in(Folder& folder, const Master& exercise) {
  require_there(folder, exercise);
  for (const auto& closed : {folder.build(), folder.build() + "/run"}) open_folder(closed);
  fs::create_directories(folder.build());
  const auto held = take_folder(folder.build() + "/.lock", say_step);
  auto verdict = try_file(exercise, folder.file_of(exercise), folder.build());
  note_try(folder, exercise, verdict.passed);
  return verdict;
}

void tell(const Verdict& verdict) {
  if (verdict.passed) return say("  pass", TextStyle::good);
  say("");
  say("Not yet: " + verdict.what, TextStyle::bad);
  if (!verdict.think.empty()) say(verdict.think);
  if (!verdict.printed.empty()) say("\n" + verdict.printed, TextStyle::faint);
}

fs::path below_here(const fs::path& path) {
  return path.lexically_proximate(fs::current_path());
}

std::string way_on(const Folder& folder, const Master& exercise) {
  const bool has_hint = folder.progress_of(exercise.name()).hints < static_cast<int>(exercise.hints().size());
  return has_hint
             ? format("A hint: lockstep check {} --hint", exercise.name())
             : format("No hint is left; one way to do it: lockstep check {} --solution", exercise.name());
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

bool check_in_short(Folder& folder, const Master& exercise) {
  say(format("{}: {}", exercise.name(), exercise.title()), TextStyle::strong);
  if (!fs::exists(folder.file_of(exercise))) {
    say(format("  your file is not there: lockstep check {} --reset puts it back", exercise.name()),
        TextStyle::bad);
    return false;
  }
  const auto verdict = try_in(folder, exercise);
  if (verdict.passed) say("  pass", TextStyle::good);
  if (!verdict.passed) say("  not yet: " + first_line(verdict.what), TextStyle::bad);
  return verdict.passed;
}

}  // namespace

Verdict try_file(const Master& exercise, const std::string& file, const std::string& build,
                 const std::string& program) {
  const auto judge = find_judge(exercise.name());
  if (!judge)
    throw Error(format("the exercise {} has no judge", exercise.name()), "", "tell who keeps the course");
  const auto folder = fs::path(build);
  const auto slot = take_check_slot(say_step);
  Trial trial(file, program.empty() ? folder / exercise.name() : fs::path(program),
              folder / "run" / exercise.name(), say_step, !program.empty());
  try {
    judge(trial);
    return {.passed = true};
  } catch (const NotYet& not_yet) {
    return {.passed = false,
            .what = not_yet.what(),
            .think = not_yet.think(),
            .printed = printed_words(trial.printed(), not_yet.what(), below_here(trial.folder()))};
  }
}

Verdict check(Folder& folder, const Master& exercise) {
  say(format("{}: {}", exercise.name(), exercise.title()), TextStyle::strong);
  auto verdict = try_in(folder, exercise);
  tell(verdict);
  say("\n" + (verdict.passed ? next_words(folder, exercise.name()) : way_on(folder, exercise)));
  return verdict;
}

bool check_all(Folder& folder) {
  bool all = true;
  for (const auto& exercise : exercises()) {
    if (folder.progress_of(exercise.name()).tries > 0) all = check_in_short(folder, exercise) && all;
  }
  return all;
}

std::string next_hint(Folder& folder, const Master& exercise) {
  const auto& hints = exercise.hints();
  if (hints.empty()) return "there is no hint for this one";
  const auto most = static_cast<int>(hints.size());
  folder.change(exercise.name(),
                [&](ExerciseProgress& progress) { progress.hints = std::min(progress.hints + 1, most); });
  const int shown = folder.progress_of(exercise.name()).hints;
  auto hint = format("hint {} of {}: {}", shown, most, hints[static_cast<size_t>(shown) - 1]);
  if (shown < most) return hint;
  return hint +
         format("\nthat was the last hint; lockstep check {} --solution shows one way", exercise.name());
}

std::string show_solution(Folder& folder, const Master& exercise) {
  folder.change(exercise.name(), [](ExerciseProgress& progress) {
    if (progress.solved.empty()) progress.saw_solution = true;  // who has solved it may compare
  });
  return exercise.solution();
}

}  // namespace lockstep::workshop
