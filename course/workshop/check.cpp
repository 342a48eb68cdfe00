#include "course/workshop/check.h"

#include <fcntl.h>
#include <sys/file.h>
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

#include "course/workshop/attempt.h"
#include "lockstep/base/descriptor.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/log.h"
#include "lockstep/launch/process/terminal.h"
#include "lockstep/launch/variables.h"

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

void say_step(const std::string& what) {
  say("  " + what, TextStyle::faint);
}

std::string cut_line(const std::string& line, size_t most) {
  if (line.size() <= most) return line;
  auto end = most;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;  // no half letter
  return line.substr(0, end) + " ...";
}

namespace {

constexpr size_t kMostRanks = 4, kMostLines = 5, kMostLineBytes = 120;
constexpr size_t kTailBytes = 1 << 16;  // of all that a rank printed

std::deque<std::string> last_lines(const std::string& printed, const std::string& said) {
  std::deque<std::string> lines;
  std::istringstream stream(printed.size() > kTailBytes ? printed.substr(printed.size() - kTailBytes)
                                                        : printed);
  for (std::string line; std::getline(stream, line);) {
    if (log::begins_error(line) || line.starts_with("terminate called ")) break;
    const auto shown = cut_line(base::readable(line), kMostLineBytes);
    if (shown.empty() || said.find(shown) != std::string::npos) continue;
    lines.push_back(shown);
    if (lines.size() > kMostLines) lines.pop_front();
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
    for (const auto& line : lines) words += format("rank {} printed: {}\n", rank, line);
    ranks += lines.empty() ? 0 : 1;
  }
  return words.empty() ? "" : words + format("(all of it: {}/rank-N.log)", folder);
}

// --- taking turns: a class on one login node, and two checks of one folder

namespace {

using base::Descriptor;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::minutes kLockWithin{10};  // then the check goes on without the lock
constexpr int kCoresOfACheck = 2;
constexpr long kBytesOfACheck = 4L << 30;

// Nothing where somebody else holds it. Others' files in /tmp may be opened and locked, but not with O_CREAT.
std::optional<Descriptor> try_lock(const std::string& path) {
  constexpr int kFlags = O_CLOEXEC | O_NOFOLLOW;
  Descriptor file(::open(path.c_str(), O_RDWR | kFlags));  // NFS locks only what may be written
  if (!file) file = Descriptor(::open(path.c_str(), O_RDONLY | kFlags));
  if (!file) file = Descriptor(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | kFlags, 0644));
  const bool is_held = !file || (::flock(file.number(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK);
  return is_held ? std::nullopt : std::optional(std::move(file));
}

Descriptor take_one_of(const std::vector<std::string>& locks, const std::string& words) {
  bool has_said = false;
  for (const auto deadline = Clock::now() + kLockWithin; Clock::now() < deadline;) {
    for (const auto& path : locks)
      if (auto held = try_lock(path)) return std::move(*held);
    if (!has_said) say_step(words);
    has_said = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    check_interrupted();
  }
  return Descriptor();
}

int checks_at_once() {
  if (const auto wanted = launch::number_of(launch::current_environment(), "LOCKSTEP_CHECKS"))
    return std::max(1, *wanted);
  const long memory = ::sysconf(_SC_PHYS_PAGES) * ::sysconf(_SC_PAGESIZE);
  return static_cast<int>(
      std::max(1L, std::min(::sysconf(_SC_NPROCESSORS_ONLN) / kCoresOfACheck, memory / kBytesOfACheck)));
}

Descriptor take_turn() {
  std::vector<std::string> locks;
  for (int place = 0; place < checks_at_once(); ++place)
    locks.push_back(format("/tmp/lockstep-check-{}.lock", place));
  return take_one_of(locks, format("waiting: {} already on this machine",
                                   locks.size() == 1 ? "a check is running"
                                                     : format("{} checks are running", locks.size())));
}

// --- one check

std::string now() {
  const auto seconds = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&seconds, &local);
  return format("{:04}-{:02}-{:02} {:02}:{:02}", local.tm_year + 1900, local.tm_mon + 1, local.tm_mday,
                local.tm_hour, local.tm_min);
}

Verdict try_in(Folder& folder, const Master& exercise) {
  const auto file = folder.file_of(exercise);
  if (!fs::exists(file))
    throw InputError("your file for this exercise is missing", file,
                     format("restore it with lockstep check {} --reset", exercise.name()));
  fs::create_directories(folder.build());
  const auto held = take_one_of({folder.build() + "/.lock"}, "waiting: another check of this folder runs");
  const auto verdict = try_file(exercise, file, folder.build());
  try {
    folder.change(exercise.name(), [&](ExerciseProgress& progress) {
      ++progress.tries;
      progress.last = now();
      if (verdict.passed && progress.solved.empty()) progress.solved = progress.last;
    });
  } catch (const Error& error) {  // a full disk: the verdict is worth more than its record
    log::warning("cannot record this: " + describe(error));
  }
  return verdict;
}

}  // namespace

Verdict try_file(const Master& exercise, const std::string& file, const std::string& build,
                 const std::string& program) {
  const auto check = find_check(exercise.name());
  if (!check)
    throw Error(format("the exercise {} has no check", exercise.name()), "",
                "tell the maintainer of the course");
  const auto folder = fs::path(build);
  const auto turn = take_turn();
  Attempt attempt(file, program.empty() ? folder / exercise.name() : fs::path(program),
                  folder / "run" / exercise.name(), !program.empty());
  try {
    check(attempt);
    return {.passed = true};
  } catch (const CheckFailure& not_yet) {
    const auto logs = fs::path(attempt.folder()).lexically_proximate(fs::current_path());
    return {.what = not_yet.what(),
            .think = not_yet.think(),
            .printed = printed_words(attempt.printed(), not_yet.what(), logs)};
  }
}

Verdict check(Folder& folder, const Master& exercise) {
  say(format("{}: {}", exercise.name(), exercise.title()), TextStyle::strong);
  auto verdict = try_in(folder, exercise);
  if (verdict.passed) {
    say("  pass", TextStyle::good);
    say("\n" + next_words(folder, exercise.name()));
    return verdict;
  }
  say("");
  say("Not yet: " + verdict.what, TextStyle::bad);
  if (!verdict.think.empty()) say(verdict.think);
  if (!verdict.printed.empty()) say("\n" + verdict.printed, TextStyle::faint);
  const bool has_hint = folder.progress_of(exercise.name()).hints < static_cast<int>(exercise.hints().size());
  say(format("\n{}: lockstep check {} --{}",
             has_hint ? "A hint" : "There is no further hint. Show a solution", exercise.name(),
             has_hint ? "hint" : "solution"));
  return verdict;
}

bool check_all(Folder& folder) {
  bool all = true;
  for (const auto& exercise : exercises()) {
    if (folder.progress_of(exercise.name()).tries == 0) continue;
    say(format("{}: {}", exercise.name(), exercise.title()), TextStyle::strong);
    const auto verdict = try_in(folder, exercise);
    if (verdict.passed) say("  pass", TextStyle::good);
    if (!verdict.passed) say("  not yet: " + verdict.what.substr(0, verdict.what.find('\n')), TextStyle::bad);
    all = all && verdict.passed;
  }
  return all;
}

// --- at every save

namespace {

// By polling: a save on another machine of a shared file system raises no event here.
constexpr std::chrono::milliseconds kBetweenStamps{200};

// What changes with a save, whether an editor writes the file or puts another in its place.
struct Stamp {
  ino_t file = 0;  // 0: it is not there
  off_t size = 0;
  long seconds = 0, nanoseconds = 0;
  bool operator==(const Stamp&) const = default;
};

Stamp stamp_of(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return {};
  return {facts.st_ino, facts.st_size, facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec};
}

void rest() {
  std::this_thread::sleep_for(kBetweenStamps);
  check_interrupted();
}

// A file or machine that is in trouble now may be well at the next save.
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
  std::map<std::string, Stamp> checked;
  for (const auto& exercise : watched) checked[exercise.name()] = stamp_of(folder.file_of(exercise));
  if (one) check_and_go_on(folder, *one);
  if (!one) say("watching exercises/: save one to check it, Ctrl-C to end", TextStyle::faint);
  for (;; rest()) {
    for (const auto& exercise : watched) {
      const auto file = folder.file_of(exercise);
      auto& last = checked[exercise.name()];
      auto stamp = stamp_of(file);
      if (stamp == last) continue;
      for (rest(); stamp != stamp_of(file); rest()) stamp = stamp_of(file);  // until the editor is done
      if (stamp.file == 0 || stamp == last) continue;
      last = stamp;
      check_and_go_on(folder, exercise);
    }
  }
}

}  // namespace lockstep::workshop
