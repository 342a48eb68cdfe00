#pragma once
// `lockstep check`: an exercise is built and run, and its learner told what is not right yet.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "course/workshop/folder.h"
#include "course/workshop/master.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {

using base::TextStyle;

/// The text, safe to show, in this style where standard output is a terminal with colors.
std::string styled(const std::string& text, TextStyle style);
/// A line of it on standard output.
void say(const std::string& text, TextStyle style = TextStyle::plain);
/// What a check is doing: "building".
void say_step(const std::string& what);

/// The line, cut after `most` bytes with " ..." behind it.
std::string cut_line(const std::string& line, size_t most);

/// What a check found: nothing, or what is not right yet.
struct Verdict {
  bool passed = false;
  std::string what = {}, think = {};
  std::string printed = {};  // the last lines of each rank
};

/// Builds, runs and checks a file as this exercise; what that makes goes into `build`. A `program` is one
/// that was built from the file already.
Verdict try_file(const Master& exercise, const std::string& file, const std::string& build,
                 const std::string& program = {});

/// Tries the learner's file of the exercise, prints the result, and notes it in the folder.
Verdict check(Folder& folder, const Master& exercise);

/// Tries everything that was begun, prints a line for each, and says whether all pass.
bool check_all(Folder& folder);

/// One exercise, checked at once and then at every save; or, without one, whichever is saved.
void watch(Folder& folder, const std::optional<Master>& one);

/// Tries every answer that the master knows, of the wrong ones the first `wrong`. False where one gets
/// another verdict or other words than the master says.
bool prove(const Master& exercise, const std::string& folder, size_t wrong);

/// Prints every exercise by its chapter, with what is known of it in this folder, and what comes next.
void print_overview(const Folder& folder);

/// "next: lockstep check groups.2": the first exercise behind this one that is not solved, or else the first
/// of all; "all done" where there is none.
std::string next_words(const Folder& folder, const std::string& behind);

/// Prints a line for each learner's folder: how many exercises are solved, started, seen, and the last try;
/// or every exercise, as JSON. Folders that cannot be read are named and skipped.
void print_class(const std::vector<std::string>& folders);
void print_class_json(const std::vector<std::string>& folders);

/// The last lines of each rank, and where all of it is. Leaves out what `said` holds already and lockstep's
/// own error. `folder` holds the ranks' logs.
std::string printed_words(const std::vector<std::string>& printed, const std::string& said,
                          const std::string& folder);

}  // namespace lockstep::workshop
