#pragma once
// The metrics of a checkpoint.

#include <string>

#include "trainer/setup/command.h"

namespace lockstep::train {

/// Measures it and prints, from rank 0, lines or one JSON object. Returns the exit status. Collective.
int print_metrics_of(const Command& command, const std::string& checkpoint, bool json);

}  // namespace lockstep::train
