#pragma once
// What is said of the error that ends a process: to people, and to the program that started it.

#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::launch {

/// For people: what, where, what to do, and the doctor's check where one looks at the cause.
std::string report_of(const std::exception& error);

/// Where LOCKSTEP_ERRORS names a pipe (by its descriptor) or a file: one line of JSON for it, appended.
/// Nothing is thrown.
void note_fault(const std::exception& error) noexcept;

/// {"code": "rank-lost", "ranks": [1], "what": ..., "where": ..., "hint": ..., "exit": 1}, and of an error in
/// a collective "met_in" and "seen"
std::string fault_as_json(const std::exception& error);

// A run that fails to start names the check of `lockstep doctor` that looks at the cause.

struct DoctorHint {
  Code code;
  const char* check;
};

std::span<const DoctorHint> doctor_hints();

/// The text of an error of that code, and one line more where a check of the doctor's looks at its cause.
std::string with_doctor(const std::string& text, Code code);

// What several ranks say, each text once with the ranks that say it.

using Grouped = std::vector<std::pair<std::string, std::vector<int>>>;  // a text and its ranks, rising

/// To be called for one rank after another.
void add(Grouped& groups, const std::string& text, int rank);

/// {0, 1, 2, 5} -> "0-2,5"
std::string ranges(const std::vector<int>& numbers);

/// The text, after the ranks that say it where they are not all of them.
std::string with_ranks(const std::string& text, const std::vector<int>& ranks, size_t world);

}  // namespace lockstep::launch
