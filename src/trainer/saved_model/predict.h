#pragma once
// What a checkpoint's model says of new samples.

#include <string>

#include "trainer/setup/command.h"

namespace lockstep::train {

struct PredictOptions {
  std::string checkpoint, input;
  std::string output;  // empty = standard output
  std::string format;  // csv | json; empty = by the output's name, else csv
};

/// Writes a line a sample, or one JSON value, from rank 0. Returns the exit status. Collective.
int predict(const Command& command, const PredictOptions& options);

}  // namespace lockstep::train
