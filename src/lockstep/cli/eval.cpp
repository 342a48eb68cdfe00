#include "lockstep/base/error.h"
#include "lockstep/cli/options.h"
#include "lockstep/cli/version.h"
#include "lockstep/train/run.h"

namespace lockstep::cli {

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
  command.told = {{"the command", "eval"}, {"--checkpoint", checkpoint}};
  return train::evaluate_checkpoint(command, checkpoint);
}

}  // namespace lockstep::cli
