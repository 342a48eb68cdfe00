#pragma once
// What eval, predict and export have in common: a config and a checkpoint, or a run's folder for both.

#include <string>

#include "trainer/cli/options.h"
#include "trainer/setup/command.h"

namespace lockstep::cli {

class SavedOptions {
 public:
  /// CONFIG.yaml, --checkpoint, --set and --launcher. They live as long as this does.
  void add_to(Options& options);

  /// Where no --checkpoint is given, the run's folder in the config's place; empty where that is
  /// a file.
  std::string checkpoint() const;

  /// With what has to be the same on all ranks.
  train::Command command(const std::string& name) const;

 private:
  train::Command command_;
  std::string checkpoint_;
};

}  // namespace lockstep::cli
