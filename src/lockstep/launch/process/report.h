#pragma once
// The report of the error that ends a process: for people, and for the program that started it.

#include <exception>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::launch {

/// For people: what, where, what to do, and the check of `lockstep doctor` for it, if there is one.
std::string report_of(const std::exception& error);

/// If LOCKSTEP_ERRORS names a pipe (by its descriptor) or a file, appends one line of JSON.
void note_fault(const std::exception& error) noexcept;

/// {"code": "rank-lost", "ranks": [1], "what": ..., "where": ..., "hint": ..., "exit": 1}; with "met_in" and
/// "seen" for an error in a collective
std::string fault_as_json(const std::exception& error);

/// The check of `lockstep doctor` that examines the cause of an error.
struct DoctorHint {
  Code code;
  const char* check;
};

std::span<const DoctorHint> doctor_hints();

/// The text of an error of that code, with one more line if there is a check for it.
std::string with_doctor(const std::string& text, Code code);

/// Texts of several ranks, each once with the ranks that have it, in rising order.
using Grouped = std::vector<std::pair<std::string, std::vector<int>>>;

/// Call it for the ranks in their order.
void add(Grouped& groups, const std::string& text, int rank);

/// {0, 1, 2, 5} -> "0-2,5"
std::string ranges(const std::vector<int>& numbers);

/// The text, with its ranks in front unless these are all ranks.
std::string with_ranks(const std::string& text, const std::vector<int>& ranks, size_t world);

}  // namespace lockstep::launch
