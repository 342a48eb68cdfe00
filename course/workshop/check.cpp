#include "course/workshop/check.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <deque>
#include <filesystem>
#include <map>
#include <sstream>
#include <thread>

#include "course/workshop/check_slot.h"
#include "course/workshop/folder.h"
#include "course/workshop/master.h"
#include "course/workshop/process.h"
#include "course/workshop/trial.h"
#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/process/terminal.h"

namespace lockstep::workshop {
namespace fs = std::filesystem;
std::string styled(const std::string& text, TextStyle style) {
  auto safe = base::readable(text);
  return style == TextStyle::plain || !launch::has_colour(STDOUT_FILENO) ? safe
                                                                         : base::with_style(safe, style);
}

void say(const std::string& text, TextStyle style) {
  output::print(styled(text, style) + "\n");
}

namespace {

constexpr size_t kMostRanks = 4;
constexpr size_t kMostPrintedLines = 5;
constexpr size_t kMostPrintedBytes = 120;  // of a line
constexpr size_t kTailBytes = 1 << 16;     // of all that a rank printed

bool begins_an_error(const std::string& line) {
  return log::begins_error(line) || line.starts_with("terminate called ");  // libstdc++'s
}

std::deque<std::string> last_lines(const std::string& printed, const std::string& said) {
  std::deque<std::string> lines;
  std::istringstream stream(printed.size() > kTailBytes ? printed.substr(printed.size() - kTailBytes)
                                                        : printed);
  for (std::string line; std::getline(stream, line) && !begins_an_error(line);) {
    const auto shown = cut_line(base::readable(line), kMostPrintedBytes);
    if (shown.empty() || said.find(shown) != std::string::npos) continue;
    lines.push_back(shown);
    if (lines.size() > kMostPrintedLines) lines.pop_front();
  }
  return lines;
}

}  // namespace

std::string printed_words(const std::vector<std::string>& printed, const std::string& said,
                          const std::string& folder) {
  std::string words;
  size_t ranks = 0;
  for (size_t rank = 0; rank < printed.size() && ranks < kMostRanks; ++rank) {
    const auto lines = last_lines(printed[rank], said);
    if (lines.empty()) continue;
    ++ranks;
    for (const auto& line : lines) words += format("rank {} printed: {}\n", rank, line);
  }
  return words.empty() ? "" : words + format("(all of it: {}/rank-N.log)", folder);
}

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

namespace {

// Looked for by polling: a save on another machine of a shared file system is told to nobody.
constexpr std::chrono::milliseconds kBetweenLooks{200};

/// What changes with a save, whether an editor writes the file or puts another in its place.
struct Stamp {
  ino_t file = 0;
  off_t size = 0;
  timespec changed{};
  bool operator==(const Stamp& other) const {
    return file == other.file && size == other.size && changed.tv_sec == other.changed.tv_sec &&
           changed.tv_nsec == other.changed.tv_nsec;
  }
};

// 0 for a file that is not there: an editor, or its learner, may put it back
Stamp stamp_of(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return {};
  return {facts.st_ino, facts.st_size, facts.st_mtim};
}

void rest() {
  std::this_thread::sleep_for(kBetweenLooks);
  Interruption::check();
}

// once an editor has done with it, or it is gone
Stamp settled(const std::string& path) {
  auto before = stamp_of(path);
  for (rest(); before.file != 0 && !(stamp_of(path) == before); rest()) before = stamp_of(path);
  return before;
}

// what is wrong with a file or a machine now may be well at the next save
void check_and_go_on(Folder& folder, const Master& exercise) {
  try {
    check(folder, exercise);
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& error) {
    say("\n" + describe(error), TextStyle::bad);
  }
  say(format("\nwatching {}{}: save to check again, Ctrl-C to end", exercise.name(), exercise.extension()),
      TextStyle::faint);
}

}  // namespace

void watch(Folder& folder, const std::optional<Master>& one) {
  const auto watched = one ? std::vector{*one} : exercises();
  std::map<std::string, Stamp> seen;
  for (const auto& exercise : watched) seen[exercise.name()] = stamp_of(folder.file_of(exercise));
  if (one) check_and_go_on(folder, *one);
  if (!one) say("watching exercises/: save one to check it, Ctrl-C to end", TextStyle::faint);
  for (;; rest()) {
    for (const auto& exercise : watched) {
      auto& last = seen[exercise.name()];
      const auto file = folder.file_of(exercise);
      if (stamp_of(file) == last) continue;
      const auto now = settled(file);
      if (now.file == 0 || now == last) continue;
      last = now;
      check_and_go_on(folder, exercise);
    }
  }
}

}  // namespace lockstep::workshop
