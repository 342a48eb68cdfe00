#pragma once
// What the subcommands train, eval, predict and status do, without a torch header in sight.

#include <string>
#include <utility>
#include <vector>

namespace lockstep::train {

/// What they are told on the command line.
struct Command {
  std::string config;
  std::vector<std::string> sets;
  std::string launcher = "auto";
  std::string program;                                    // version and commit
  std::vector<std::pair<std::string, std::string>> told;  // what else all ranks must have been told alike
};

/// `resume`: empty, "auto", a run's folder or a checkpoint. Returns the exit status.
int train(const Command& command, const std::string& resume);

/// Everything but the training: resolves, loads, builds, tries one step, prints what would run.
int dry_run(const Command& command);

/// Prints the table of metrics of a checkpoint, from rank 0.
int evaluate_checkpoint(const Command& command, const std::string& checkpoint);

struct PredictOptions {
  std::string checkpoint, input;
  std::string output;  // empty = stdout
  std::string format;  // csv | json; empty = by the output's name, else csv
};
int predict(const Command& command, const PredictOptions& options);

/// Prints what became of the run; returns what it leaves with.
int status(const std::string& folder);

struct AskOptions {
  bool wait = true;
  double seconds = 600;  // how long for
};
/// Ask a run that is on to stop with a checkpoint, or for a checkpoint now; say what came of it.
int stop(const std::string& folder, const AskOptions& options);
int checkpoint(const std::string& folder, const AskOptions& options);

}  // namespace lockstep::train
