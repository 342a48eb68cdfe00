#pragma once
// The course: its chapters and exercises, as they lie in tutorials/.

#include <string>
#include <vector>

#include "course/workshop/master.h"

namespace lockstep::workshop {

struct Chapter {
  int number;
  std::string word;  // of its exercises: groups.1 is the first of the chapter `groups`
  std::string title;
};

const std::vector<Chapter>& chapters();

/// LOCKSTEP_HOME/tutorials; InputError where there is none.
std::string tutorials_folder();

/// Where the exercise belongs; number 0 where to none.
const Chapter& chapter_of(const Master& exercise);

/// Every exercise, in the order of the course.
std::vector<Master> exercises();
/// By its name, or the path of its file; InputError, with the nearest name, where there is none.
Master find_exercise(const std::string& word);

}  // namespace lockstep::workshop
