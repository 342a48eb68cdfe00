#pragma once
// What is said of the error that ends a process: to people, and to the program that started it.

#include <exception>
#include <string>

namespace lockstep::launch {

/// For people: what, where, what to do, and the doctor's check where one looks at the cause.
std::string report_of(const std::exception& error);

/// Where LOCKSTEP_ERRORS names a pipe (by its descriptor) or a file: one line of JSON for it, appended.
/// Nothing is thrown.
void note_fault(const std::exception& error) noexcept;

/// {"code": "rank-lost", "ranks": [1], "what": ..., "where": ..., "hint": ..., "exit": 1}, and of an error in
/// a collective "met_in" and "seen"
std::string fault_as_json(const std::exception& error);

}  // namespace lockstep::launch
