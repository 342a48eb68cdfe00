#pragma once
// What of a config is its owner's own: the file's name, the run's, and what stands below the options of a
// model or task of theirs.

#include <string>

#include "tools/doctor/anonymous.h"

namespace lockstep::doctor {

/// Adds them; of a file that cannot be read, its name alone.
void hide_config(Secrets& secrets, const std::string& path);

}  // namespace lockstep::doctor
