#include "course/workshop/watch.h"

#include <sys/stat.h>

#include <chrono>
#include <map>
#include <thread>

#include "course/workshop/course.h"
#include "course/workshop/process/interruption.h"
#include "course/workshop/text_style.h"
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::workshop {
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
