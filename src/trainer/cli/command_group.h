#pragma once
// A command that is several: `lockstep bench step`, `lockstep model check`.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tools/cluster/job_script.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/options.h"
#include "trainer/run_folder/request.h"
#include "trainer/run_folder/status.h"
#include "trainer/setup/command.h"

namespace lockstep::cli {

struct CommandGroup {
  std::string name;                   // "bench"
  std::string summary;                // what --help says below its name
  std::string kind, kinds;            // what its members are called: "bench", "benches"
  std::vector<std::string> examples;  // whole lines
  std::vector<Subcommand> members;
};

/// Runs the member that the first word names, with the words after it.
int run_group(const CommandGroup& group, const std::vector<std::string>& args);

// The options by which a job is described, for every command that writes or submits one.

/// --site, --nodes, --gpus-per-node, ..., --set, into `job`, which outlives the options.
void add_job_options(Options& options, cluster::JobRequest& job);

// What eval, predict and export have in common: a config and a checkpoint, or a run's folder for both.

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

// What `lockstep stop` and `lockstep checkpoint` share: their options, the request, and the wait for its
// answer.

struct Asking {
  std::string command, summary;
  run_folder::RunRequest request;
};

struct Asked {
  std::filesystem::path folder;
  run_folder::RunStatus before, after;
};

/// Asks the run that the arguments name, and waits until it has obeyed or is over. Nothing where there is
/// none to wait for: with --help and --no-wait. Throws where the run is not on, has failed, or takes too
/// long.
std::optional<Asked> ask_run(const Asking& asking, const std::vector<std::string>& args);

}  // namespace lockstep::cli
