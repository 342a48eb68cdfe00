#pragma once
// The table of subcommands, which `lockstep --help` lists, and the program's version.

#include <string>
#include <utility>
#include <vector>

namespace lockstep::cluster {
struct JobRequest;
}

namespace lockstep::cli {

class Options;

struct Subcommand {
  std::string name;
  std::string summary;
  int (*run)(const std::vector<std::string>& args);  // args: what follows the command's name
};

const std::vector<Subcommand>& commands();

/// Whether the command joins the ranks of a job; the others run anywhere, each process for itself.
bool joins_job(const std::string& command);

/// What this program was built from: the names and versions of lockstep, commit, libtorch, MPI, ...
std::vector<std::pair<std::string, std::string>> versions();
/// A line each.
std::string version_text();
/// The version and the commit alone.
std::string version_line();

// A command that is several: `lockstep bench step`, `lockstep model check`.

struct CommandGroup {
  std::string name;                   // "bench"
  std::string summary;                // what --help says below its name
  std::string kind, kinds, word;      // what its members are called: "benchmark", "benchmarks", "BENCHMARK"
  std::vector<std::string> examples;  // whole lines
  std::vector<Subcommand> members;
};

/// Runs the member that the first word names, with the words after it.
int run_group(const CommandGroup& group, const std::vector<std::string>& args);

// The options by which a job is described, for every command that writes or submits one.

/// --site, --nodes, --gpus-per-node, ..., --set, into `job`, which outlives the options.
void add_job_options(Options& options, cluster::JobRequest& job);

}  // namespace lockstep::cli
