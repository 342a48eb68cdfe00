#pragma once
// A learner's folder: a copy of the course, the exercises as the learner has them, and how far they have
// come.

#include <functional>
#include <map>
#include <string>
#include <vector>

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
  /// The one in which `from` lies, itself or above it; InputError where there is none.
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
  /// Puts the exercise back as it was found; the learner's is kept as NAME.cpp.old. Returns its path.
  std::string reset(const Master& exercise) const;

 private:
  explicit Folder(std::string path);
  void save() const;
  std::string path_;
  std::map<std::string, ExerciseProgress> progress_;
};

/// Gives the owner all rights to a folder that is there; a link is left as it is.
void open_folder(const std::string& folder);

/// An empty folder of that name, whatever was there.
void make_empty(const std::string& folder);

}  // namespace lockstep::workshop
