// lockstep eval: the metrics of any checkpoint, at any world size.
#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/output.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/cli/options.h"
#include "lockstep/cli/version.h"
#include "lockstep/train/acting.h"
#include "lockstep/train/evaluate.h"
#include "lockstep/train/saved.h"
#include "lockstep/train/setup.h"
#include "lockstep/train/task_memory.h"

namespace lockstep::cli {
namespace {

int play(const train::Setup& setup, const Actor& actor, Net& net, const std::string& path) {
  const auto report = train::report_of_play(setup, actor, net);
  if (setup.team->first()) {
    output::line(path + ", played");
    output::line(report);
  }
  setup.team->barrier();
  return kDone;
}

void refuse_nothing(const Dataset& set) {
  if (set.size() > 0) return;
  throw InputError("no sample is left to evaluate on", "task.eval_fraction",
                   "raise it, or name a file of samples: --set task.eval_file=FILE");
}

int evaluate(const train::Command& command, const std::string& checkpoint) {
  auto setup = train::join_job(command);
  const auto [path, tree] = train::read_saved(*setup.team, checkpoint);
  if (!train::recall(setup, tree) || !train::load_evaluation(setup)) train::load_data(setup);
  const auto net = train::seeded_model(setup);
  load_module_state_dict(*net, find_state_dict(tree, path), path);
  net->to(setup.team->device());
  if (const auto actor = train::actor_of(setup)) return play(setup, *actor, *net, path);
  refuse_nothing(*setup.data.eval);
  const auto metrics = train::evaluate(*setup.team, *net, *setup.task, setup.data, setup.settings);
  if (setup.team->first()) {
    output::line(format("{} on {} samples", path, setup.data.eval->size()));
    output::line(metrics->report());
  }
  setup.team->barrier();
  return kDone;
}

}  // namespace

int run_eval(const std::vector<std::string>& args) {
  train::Command command;
  std::string checkpoint;
  Options options("eval", "the metrics of a checkpoint, exact at any number of ranks",
                  {"lockstep eval runs/mnist/config.yaml --checkpoint runs/mnist",
                   "mpirun -n 4 lockstep eval configs/mnist.yaml --checkpoint model.safetensors"});
  options.positional("CONFIG.yaml", command.config, "the config file");
  options.add("checkpoint", checkpoint, "PATH",
              "a run's folder, a .pt file of lockstep's or Python's, or safetensors");
  options.add("set", command.sets, "KEY=VALUE", "overrule a key; may be given again");
  options.add("launcher", command.launcher, "NAME", "overrule the detection; none = alone");
  if (!options.parse(args)) return kDone;
  if (checkpoint.empty()) {
    throw InputError("eval needs a checkpoint", "--checkpoint",
                     "pass --checkpoint runs/NAME/checkpoints/step-N.pt");
  }
  command.program = version_line();
  command.whole_model = true;
  command.told = {{"the command", "eval"}, {"--checkpoint", checkpoint}};
  return evaluate(command, checkpoint);
}

}  // namespace lockstep::cli
