#pragma once
// A command that is several: `lockstep bench step`, `lockstep model check`.

#include <string>
#include <vector>

#include "tools/submit/submission.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/options.h"

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
void add_job_options(Options& options, submit::WantedJob& job);

}  // namespace lockstep::cli
