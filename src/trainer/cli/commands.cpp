#include "trainer/cli/commands.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "tools/cluster/job_script.h"
#include "trainer/cli/failure.h"
#include "trainer/cli/options.h"

// To add a command NAME: write `int run_NAME(const std::vector<std::string>& args)` (namespace lockstep::cli)
// in cli/commands/NAME.cpp, parse with cli/options.h, and add ONE line here, in the order that `lockstep
// --help` shows. Return an ExitStatus. Throw for errors, also past a Runtime: main says them once for the job
// (launch/process/leave.h).
#define LOCKSTEP_COMMANDS(X)                                                     \
  X(train, "trains the model that a config describes")                           \
  X(eval, "computes a checkpoint's metrics, counting each sample once")          \
  X(predict, "predicts classes and probabilities of new samples")                \
  X(export, "exports a checkpoint for Python: a .pt2, or a folder for BERT")     \
  X(status, "shows whether a run is running, done, failed or stopped")           \
  X(stop, "stops a run after a checkpoint, and prevents restarts")               \
  X(checkpoint, "asks a run to write a checkpoint now and continue")             \
  X(runs, "compares all runs in a folder: states, metrics, settings")            \
  X(report, "writes a self-contained HTML page about one run or several")        \
  X(inspect, "lists the tensors of a checkpoint: shapes, dtypes, digests")       \
  X(config, "shows every key of a config, its value and its origin")             \
  X(check, "checks an exercise of the built-in course, or shows your progress")  \
  X(workshop, "copies the course to a folder and prepares it for a class")       \
  X(whoami, "shows rank, world size, node and device of every process, and why") \
  X(render, "writes a job script for a cluster, without submitting it")          \
  X(submit, "submits a training job, a chain of jobs or a parameter sweep")      \
  X(job, "runs in a job script: starts ranks, forwards signals, restarts")       \
  X(site, "lists known clusters, or writes a site file for this one")            \
  X(doctor, "finds problems with nodes, jobs and networks, and suggests fixes")  \
  X(model, "checks a model exported from Python, or helps to export one")        \
  X(bench, "measures and plots the time of steps and all-reduces")               \
  X(data, "lists, fetches, verifies and packs data sets")

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

void add_job_options(Options& options, cluster::JobRequest& job) {
  options.add("site", job.site, "SITE",
              "a site (lockstep site list) or the path of its file (default: the scheduler's generic site)");
  options.add("nodes", job.nodes, "N", "nodes of the job (default 1)");
  options.add("gpus-per-node", job.gpus_per_node, "N",
              "GPUs on each node (default: all that the site's nodes have)");
  options.add("ranks-per-node", job.ranks_per_node, "N",
              "ranks on each node (default: one per GPU; without GPUs, the site's value or 2)");
  options.add("cpus-per-rank", job.cores_per_rank, "N",
              "cores per rank (default: the node's cores divided by its ranks)");
  options.add("time", job.time, "TIME", "time limit, such as 30m, 2h or 1h30m (default 30m)");
  options.add("queue", job.queue, "NAME", "queue, partition or QOS (default: the site's)");
  options.add("account", job.account, "NAME", "account or project that is charged");
  options.add("storage", job.storage, "NAMES",
              "file systems that the job needs, if the site requires them (PBS)");
  options.add("name", job.name, "NAME", "the job's name (default lockstep)");
  options.add("set", job.sets, "KEY=VALUE", "override a key of the config; repeatable");
}

namespace {

int print_group(const CommandGroup& group) {
  const auto command = "lockstep " + group.name;
  auto text = format("{}: {}\n\nusage: {} {} [arguments]\n\n{}:\n", command, group.summary, command,
                     group.word, group.kinds);
  for (const auto& member : group.members) text += format("  {:<10} {}\n", member.name, member.summary);
  text += format("\noptions:\n  -h, --help     this page; {} {} --help for {} {}\n\nexamples:\n", command,
                 group.word, group.kind.starts_with('a') ? "an" : "a", group.kind);
  for (const auto& example : group.examples) text += "  " + example + "\n";
  std::fputs(text.c_str(), stdout);
  return kDone;
}

[[noreturn]] void refuse_member(const CommandGroup& group, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& member : group.members) names.push_back(member.name);
  throw UsageError(format("unknown {} '{}'", group.kind, base::printable(name)), "lockstep " + group.name,
                   base::did_you_mean(name, names, "choose one of " + base::join(names, ", ")));
}

}  // namespace

int run_group(const CommandGroup& group, const std::vector<std::string>& args) {
  const auto command = "lockstep " + group.name;
  if (args.empty())
    throw UsageError(format("missing argument {}", group.word), command, format("see {} --help", command));
  if (args[0] == "--help" || args[0] == "-h") return print_group(group);
  const bool names_member = args[0] == kComplete && args.size() == 2;
  for (const auto& member : group.members) {
    if (args[0] == kManual) member.run(args);
    if (names_member) print_completion(args[1], member.name, member.summary);
  }
  if (args[0] == kManual || names_member) return kDone;
  auto rest = args;
  const auto name = rest.begin() + (args[0] == kComplete);
  const auto found = std::ranges::find(group.members, *name, &Subcommand::name);
  if (found == group.members.end()) refuse_member(group, *name);
  rest.erase(name);
  return found->run(rest);
}

}  // namespace lockstep::cli
