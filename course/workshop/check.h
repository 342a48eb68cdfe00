#pragma once
// An exercise is checked: built, run, judged, and its learner told.

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "course/workshop/folder.h"
#include "course/workshop/master.h"
#include "lockstep/base/text.h"

namespace lockstep::workshop {

using base::TextStyle;

/// The text, safe to show, in this style where standard output is a terminal that has it.
std::string styled(const std::string& text, TextStyle style);

/// A line of it on standard output.
void say(const std::string& text, TextStyle style = TextStyle::plain);

/// The line, or its first `most` bytes at most, with " ..." behind them.
inline std::string cut_line(const std::string& line, size_t most) {
  if (line.size() <= most) return line;
  auto end = most;
  while (end > 0 && (static_cast<unsigned char>(line[end]) & 0xC0) == 0x80) --end;  // no half letter
  return line.substr(0, end) + " ...";
}

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

/// One exercise, checked at once and then at every save; or, without one, whichever is saved.
void watch(Folder& folder, const std::optional<Master>& one);

/// Tries the answers that the master knows, of the wrong ones the first `wrong`, in `folder`, and prints what
/// each is told. False where one is told anything else.
bool prove(const Master& exercise, const std::string& folder, size_t wrong);

/// Prints every exercise by its chapter, with what is known of it in this folder, and what comes next.
void print_overview(const Folder& folder);

/// "next: lockstep check groups.2": the first exercise behind this one that is not solved, or else the first
/// of all; "all done" where there is none.
std::string next_words(const Folder& folder, const std::string& behind);

/// Prints a line for each learner's folder: how many exercises are solved, begun, seen, and the last try.
/// What is no such folder, or cannot be read, is named and skipped.
void print_class(const std::vector<std::string>& folders);
/// The same, with every exercise, for other programs.
void print_class_json(const std::vector<std::string>& folders);

/// The last lines of each rank, and where all of it is; what `said` holds already is left out, and so is
/// lockstep's own error. Empty where nothing is left. `folder` holds the ranks' logs.
std::string printed_words(const std::vector<std::string>& printed, const std::string& said,
                          const std::string& folder);

}  // namespace lockstep::workshop
