#include "trainer/cli/commands.h"

#include <algorithm>
#include <array>

// To add a command NAME: write `int run_NAME(const std::vector<std::string>& args)` (namespace lockstep::cli)
// in cli/commands/NAME.cpp, parse with cli/options.h, and add ONE line here, in the order that `lockstep
// --help` shows. Return an ExitStatus. Throw for errors, also past a Runtime: main says them once for the job
// (launch/process/leave.h).
#define LOCKSTEP_COMMANDS(X)                                                      \
  X(train, "trains what a config says, on one process or many")                   \
  X(eval, "the metrics of a checkpoint, exact at any number of ranks")            \
  X(predict, "classes and probabilities of new samples")                          \
  X(export, "a checkpoint for Python: torch.export's .pt2, or a BERT's folder")   \
  X(status, "the state of a run: running, stopped early, done, failed")           \
  X(stop, "stops a run with a checkpoint, for good")                              \
  X(checkpoint, "has a run write a checkpoint now, and go on")                    \
  X(runs, "all runs of a folder side by side: states, metrics, settings")         \
  X(report, "one self-contained HTML page of a run, or of several")               \
  X(inspect, "the tensors of a checkpoint, their shapes, dtypes and digests")     \
  X(config, "every key of a config, its value and where it came from")            \
  X(check, "an exercise of the course: built, run, judged; or how far you are")   \
  X(workshop, "the course: copied to a learner's folder, made ready for a class") \
  X(whoami, "rank, world, node and device of every process, and why")             \
  X(render, "the job script that trains a config, as a site wants it")            \
  X(submit, "submits a training, and waits for it; chains, sweeps")               \
  X(job, "what a job script runs: ranks, signals, restarts")                      \
  X(site, "what is known of clusters, and a proposal for this one")               \
  X(doctor, "what is wrong with a node, a job, its network, and what to do")      \
  X(model, "a model that Python exported: what it holds, how to export one")      \
  X(bench, "measured, verified, with a plot: what costs how much")                \
  X(data, "list, fetch and verify the known data sets")

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
