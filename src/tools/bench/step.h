#pragma once
// `lockstep bench step`: where the time of a training's step goes, and how far it is from what the machine
// can do.

#include <cstdint>
#include <optional>
#include <string>

#include "trainer/setup/command.h"

namespace lockstep::bench {

struct StepBench {
  train::Command command;        // the config that is trained
  std::optional<int64_t> steps;  // that are timed; else as many as take a few seconds
  bool json = false;             // in place of the tables
  std::string out;               // an HTML page; empty = none
};

/// InputError where that cannot be measured anywhere.
void check(const StepBench& bench);

/// Joins the job, trains, and prints the result on rank 0; leaves no run behind. Returns the exit status.
int step(const StepBench& bench);

}  // namespace lockstep::bench
