#pragma once
// An exercise is checked: built, run, judged, and its learner told.

#include <string>
#include <vector>

#include "course/workshop/folder.h"

namespace lockstep::workshop {

/// What a check found: nothing, or what is not right yet.
struct Verdict {
  bool passed = false;
  std::string what = {};
  std::string think = {};
  std::string printed = {};  // the last lines of each rank
};

/// Builds, runs and judges a file as this exercise; what that makes goes into `build`. A `program` is one
/// that was built of it already.
Verdict try_file(const Master& exercise, const std::string& file, const std::string& build,
                 const std::string& program = {});

/// Tries the learner's file of the exercise, prints how it goes, and notes it in the folder.
Verdict check(Folder& folder, const Master& exercise);

/// Tries everything that was begun, prints a line for each, and says whether all pass.
bool check_all(Folder& folder);

/// The next hint, in steps; the last again when there are no more.
std::string next_hint(Folder& folder, const Master& exercise);

/// The solution; the folder remembers that it was seen.
std::string show_solution(Folder& folder, const Master& exercise);

}  // namespace lockstep::workshop
