#pragma once
// `lockstep train`, without a torch header in sight.

#include <string>

#include "trainer/setup/command.h"

namespace lockstep::train {

/// `resume`: empty, "auto", a run's folder or a checkpoint. Returns the exit status.
int train(const Command& command, const std::string& resume);

/// Everything but the training: resolves, loads, builds, tries one step, prints what would run.
int dry_run(const Command& command, bool as_json);

}  // namespace lockstep::train
