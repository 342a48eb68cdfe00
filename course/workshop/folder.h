#pragma once
// A learner's folder: a copy of the course, the exercises as the learner has them, and the progress.

#include <functional>
#include <map>
#include <string>

#include "course/workshop/master.h"

namespace lockstep::workshop {

/// What is known of an exercise in a folder.
struct ExerciseProgress {
  int tries = 0;
  int hints = 0;  // shown so far
  bool saw_solution = false;
  std::string solved;  // when: "2026-03-01 14:05", empty = not yet
  std::string last;    // when it was tried last
};

class Folder {
 public:
  /// Copies the course to `path`. What is there already stays as it is. InputError inside another course.
  static Folder init(const std::string& path);
  /// The course folder in which `from` lies; InputError where there is none.
  static Folder find(const std::string& from);
  /// The one that `path` is; InputError where it is none.
  static Folder at(const std::string& path);

  const std::string& path() const { return path_; }
  /// The learner's file of an exercise.
  std::string file_of(const Master& exercise) const;
  /// build/: what is compiled here, and where programs run.
  std::string build() const;

  /// By the exercises' names.
  const std::map<std::string, ExerciseProgress>& progress() const { return progress_; }
  ExerciseProgress progress_of(const std::string& exercise) const;
  /// Changes what is known of one, in the file as it is now: another check may have written it.
  void change(const std::string& exercise, const std::function<void(ExerciseProgress&)>& change);
  /// The progress as the file has it.
  std::string progress_json() const;

  /// The next hint, in steps; the last again when there are no more.
  std::string next_hint(const Master& exercise);
  /// The solution; the folder remembers that it was seen.
  std::string show_solution(const Master& exercise);
  /// Puts the exercise back as it was found; the learner's is kept as NAME.cpp.old. Returns what to say.
  std::string reset(const Master& exercise) const;

 private:
  explicit Folder(std::string path);
  std::string path_;
  std::map<std::string, ExerciseProgress> progress_;
};

}  // namespace lockstep::workshop
