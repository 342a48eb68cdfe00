#pragma once
// A run that fails to start names the check of `lockstep doctor` that would have told.

#include <span>
#include <string>

namespace lockstep::launch {

/// Words of an error, and the doctor's check that looks at what is behind it.
struct DoctorHint {
  const char* words;
  const char* check;
};

std::span<const DoctorHint> doctor_hints();

/// The text of an error, and one line more where a check of the doctor's looks at its cause.
std::string with_doctor(const std::string& text);

}  // namespace lockstep::launch
