#include "trainer/cli/commands.h"

#include <algorithm>
#include <array>

// To add a command NAME: write `int run_NAME(const std::vector<std::string>& args)` (namespace lockstep::cli)
// in cli/commands/NAME.cpp, parse with cli/options.h, and add ONE line here, in the order that `lockstep
// --help` shows. Return an ExitStatus. Throw for errors, also past a Runtime: main says them once for the job
// (launch/process/leave.h).
#define LOCKSTEP_COMMANDS(X)                                                     \
  X(train, "trains a config on one process or many")                             \
  X(eval, "computes the metrics of a checkpoint, exact at any number of ranks")  \
  X(predict, "predicts classes and probabilities of new samples")                \
  X(export, "exports a checkpoint for Python: a .pt2, or a folder for BERT")     \
  X(status, "shows the state of a run: running, stopped early, done, failed")    \
  X(stop, "stops a run for good, with a checkpoint")                             \
  X(checkpoint, "asks a run to write a checkpoint now and continue")             \
  X(runs, "compares all runs in a folder: states, metrics, settings")            \
  X(report, "writes a self-contained HTML page about one run or several")        \
  X(inspect, "lists the tensors of a checkpoint: shapes, dtypes, digests")       \
  X(config, "shows every key of a config, its value and its origin")             \
  X(check, "builds, runs and checks an exercise, or shows your progress")        \
  X(workshop, "copies the course to a folder, prepares it for a class")          \
  X(whoami, "shows rank, world size, node and device of every process, and why") \
  X(render, "writes the job script that trains a config, for a site")            \
  X(submit, "submits a training job and can wait for it; chains, sweeps")        \
  X(job, "runs in a job script: starts ranks, forwards signals, restarts")       \
  X(site, "lists known clusters, and proposes a file for this one")              \
  X(doctor, "finds problems of a node, a job or its network, with fixes")        \
  X(model, "checks a model exported from Python, or helps to export one")        \
  X(bench, "measures and plots what costs how much time")                        \
  X(data, "lists, fetches and verifies the known data sets")

namespace lockstep::cli {

#define LOCKSTEP_DECLARE_COMMAND(name, summary) int run_##name(const std::vector<std::string>& args);
LOCKSTEP_COMMANDS(LOCKSTEP_DECLARE_COMMAND)

const std::vector<Subcommand>& commands() {
#define LOCKSTEP_COMMAND_ROW(name, summary) {#name, summary, run_##name},
  static const std::vector<Subcommand> table = {LOCKSTEP_COMMANDS(LOCKSTEP_COMMAND_ROW)};
  return table;
}

bool joins_job(const std::string& command) {
  static constexpr std::array<const char*, 7> joining = {"train",  "eval",   "predict", "export",
                                                         "whoami", "doctor", "bench"};
  return std::find(joining.begin(), joining.end(), command) != joining.end();
}

}  // namespace lockstep::cli
