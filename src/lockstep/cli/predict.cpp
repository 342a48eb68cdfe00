#include "lockstep/base/error.h"
#include "lockstep/cli/options.h"
#include "lockstep/cli/version.h"
#include "lockstep/train/run.h"

namespace lockstep::cli {

int run_predict(const std::vector<std::string>& args) {
  train::Command command;
  train::PredictOptions wanted;
  Options options(
      "predict", "classes and probabilities of new samples",
      {"lockstep predict configs/mnist.yaml --checkpoint PATH --input seven.png",
       "lockstep predict configs/pima.yaml --checkpoint PATH --input patients.csv --output out.json"});
  options.positional("CONFIG.yaml", command.config, "the config file");
  options.add("checkpoint", wanted.checkpoint, "PATH",
              "a run's folder, a .pt file of lockstep's or Python's, or safetensors");
  options.add("input", wanted.input, "FILE", "IDX, IDX.gz, PNG or CSV, as the task reads them");
  options.add("output", wanted.output, "FILE", "where to write; standard output unless given");
  options.add("format", wanted.format, "csv|json", "how to write; by the output's name, else csv");
  options.add("set", command.sets, "KEY=VALUE", "overrule a key; may be given again");
  options.add("launcher", command.launcher, "NAME", "overrule the detection; none = alone");
  if (!options.parse(args)) return kDone;
  if (wanted.checkpoint.empty() || wanted.input.empty()) {
    throw InputError("predict needs a checkpoint and an input", "--checkpoint, --input",
                     "see lockstep predict --help");
  }
  command.program = version_line();
  command.told = {{"the command", "predict"}, {"--checkpoint", wanted.checkpoint}, {"--input", wanted.input}};
  return train::predict(command, wanted);
}

}  // namespace lockstep::cli
