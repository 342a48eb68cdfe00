#pragma once
// `lockstep train`, and what it and the others that join a job are told, without a torch header in sight.

#include <string>
#include <utility>
#include <vector>

namespace lockstep::train {

/// What they are told on the command line.
struct Command {
  std::string config;
  std::vector<std::string> sets;
  std::string launcher = "auto";
  bool trace = false;                                     // train.trace, where the config has none
  std::string program;                                    // version and commit
  std::vector<std::pair<std::string, std::string>> told;  // what else all ranks must have been told alike
  bool whole_model = false;                               // each rank takes it, whatever `parallel` says
};

/// `resume`: empty, "auto", a run's folder or a checkpoint. Returns the exit status.
int train(const Command& command, const std::string& resume);

/// Everything but the training: resolves, loads, builds, tries one step, prints what would run.
int dry_run(const Command& command);

}  // namespace lockstep::train
