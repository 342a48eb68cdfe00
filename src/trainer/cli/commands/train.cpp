// lockstep train: trains what a config says.
#include "trainer/loop/run.h"

#include <algorithm>
#include <cstdlib>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/identify.h"
#include "lockstep/launch/process/spawn_ranks.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/failure.h"
#include "trainer/cli/options.h"
#include "trainer/config/keys.h"

namespace lockstep::cli {
namespace {

// Each runs this program with the same arguments again.
int start_ranks(int64_t ranks) {
  const auto environment = launch::current_environment();
  const auto job = launch::identify(environment, std::nullopt, "auto", launch::read_host_facts(environment),
                                    launch::Phantoms::allow);
  if (ranks < 1)
    throw UsageError(format("--ranks must be at least 1 (got {})", ranks), "lockstep train", "use 1 or more");
  if (job.world > 1)
    throw UsageError(
        format("--ranks {} cannot be used here: {} already started {} ranks", ranks, job.launcher, job.world),
        "lockstep train", "omit --ranks");
  return train::start_ranks(job, static_cast<int>(ranks));
}

}  // namespace

int run_train(const std::vector<std::string>& args) {
  train::Command command;
  std::string resume, fault, run_file, errors, silence, allocation;
  int64_t ranks = 1;
  bool dry_run = false, as_json = false;
  Options options("train", "trains the model that a config describes, and writes everything to a run folder",
                  {"lockstep train configs/mnist.yaml --ranks 2", "srun lockstep train configs/mnist.yaml",
                   "lockstep train configs/pima.yaml --set train.epochs=3 --resume auto"});
  options.positional("CONFIG.yaml", command.config, "the config file");
  options.add("set", command.sets, "KEY=VALUE", "override a key, as in train.epochs=3; repeatable");
  options.add("ranks", ranks, "N", "start N ranks on this machine, without mpirun or srun (default 1)");
  options.add(
      "resume", resume, "auto|PATH",
      "auto: resume the newest unfinished run of this config, or start a new run; a run folder: resume it; "
      "a checkpoint: start from it in a new folder");
  options.flag("dry-run", dry_run, "load everything, run one step, and print what would run");
  options.flag("json", as_json, "with --dry-run: print one JSON object, for programs");
  options.flag("trace", command.trace,
               "write trace.json for Perfetto: the last 100 steps (or train.trace) of each rank");
  options.add(
      "provoke", fault, "FAULT",
      "inject a fault, for practice: skipped-collective, different-shape, "
      "different-order, "
      "unused-parameter, unsynced-batchnorm, local-loss, nccl-in-container (docs/how-to/error-messages.md)");
  options.launcher(command.launcher);
  options.add("run-file", run_file, "FILE", "write the path of the run folder to FILE");
  options.add("errors", errors, "FILE", "append the error of each rank to FILE, as JSON");
  options.add("silence", silence, "SECONDS",
              "a node that does not answer for this long is lost (default 60)");
  options.add("allocation", allocation, "BEGAN,CORES,GPUS,QUEUED",
              "start time, cores, GPUs and queue time of the batch job; lockstep job sets it");
  if (!options.parse(args)) return kDone;
  // `lockstep job` passes arguments, because a site may restrict the environment of ranks
  for (const auto& [name, value] : {std::pair{"LOCKSTEP_RUN_FILE", run_file},
                                    {"LOCKSTEP_ERRORS", errors},
                                    {"LOCKSTEP_SILENCE", silence},
                                    {"LOCKSTEP_ALLOCATION", allocation}})
    if (!value.empty()) ::setenv(name, value.c_str(), 1);
  if (ranks != 1 && launch::spawned_rank_count() == 0) return start_ranks(ranks);
  const auto typed = fault;
  std::ranges::replace(fault, '_', '-');
  auto faults = config::find_key("train.provoke")->rules.choices;
  for (auto& known : faults) std::ranges::replace(known, '_', '-');
  if (!fault.empty() && std::ranges::find(faults, fault) == faults.end())
    throw UsageError(format("unknown fault '{}'", base::printable(typed)), "--provoke",
                     base::did_you_mean(fault, faults, "choose one that lockstep train --help lists"));
  std::ranges::replace(fault, '-', '_');
  if (!fault.empty()) command.sets.push_back("train.provoke=" + fault);
  command.program = version_line();
  command.must_match = {
      {"the command", "train"}, {"--resume", resume}, {"--trace", command.trace ? "yes" : "no"}};
  if (as_json && !dry_run)
    throw InputError("--json needs --dry-run", "the command line",
                     "add --dry-run; for the state of a run, use lockstep status --json RUN");
  return dry_run ? train::dry_run(command, as_json) : train::train(command, resume);
}

}  // namespace lockstep::cli
