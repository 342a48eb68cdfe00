#pragma once
// The doctor's words: one line a finding, or all of it as JSON.

#include <string>

#include "tools/doctor/node/facts.h"
#include "tools/doctor/node/finding.h"

namespace lockstep::doctor {

/// "ok       launcher      ...", and below it what to do and the drawing. `tag` opens every line.
std::string as_text(const Finding& finding, const std::string& tag);
/// "14 ok, 1 warning, no failure, 2.3 s"
std::string summary(const Findings& findings, double seconds);
/// The schema is in docs/doctor.md.
std::string as_json(const Findings& findings, const Picture& picture, double seconds);

}  // namespace lockstep::doctor
