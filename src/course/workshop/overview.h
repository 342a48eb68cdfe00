#pragma once
// How far a learner has come through the course, and a class.

#include <string>
#include <vector>

#include "course/workshop/folder.h"

namespace lockstep::workshop {

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

}  // namespace lockstep::workshop
