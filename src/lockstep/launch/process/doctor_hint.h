#pragma once
// A run that fails to start names the check of `lockstep doctor` that looks at the cause.

#include <span>
#include <string>

#include "lockstep/base/error.h"

namespace lockstep::launch {

struct DoctorHint {
  Code code;
  const char* check;
};

std::span<const DoctorHint> doctor_hints();

/// The text of an error of that code, and one line more where a check of the doctor's looks at its cause.
std::string with_doctor(const std::string& text, Code code);

}  // namespace lockstep::launch
