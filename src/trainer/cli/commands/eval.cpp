// lockstep eval: the metrics of any checkpoint, at any world size.
#include "lockstep/base/error.h"
#include "trainer/cli/options.h"
#include "trainer/cli/saved_options.h"
#include "trainer/saved_model/metrics_of.h"

namespace lockstep::cli {

int run_eval(const std::vector<std::string>& args) {
  SavedOptions saved;
  bool json = false;
  Options options(
      "eval", "the metrics of a checkpoint, exact at any number of ranks",
      {"lockstep eval runs/mnist", "lockstep eval configs/mnist.yaml --checkpoint runs/mnist --json",
       "mpirun -n 4 lockstep eval configs/mnist.yaml --checkpoint model.safetensors"});
  saved.add_to(options);
  options.flag("json", json, "one JSON object, for programs");
  if (!options.parse(args)) return kDone;
  const auto checkpoint = saved.checkpoint();
  if (checkpoint.empty()) {
    throw InputError("eval needs a checkpoint", "--checkpoint",
                     "lockstep eval runs/NAME, or pass --checkpoint runs/NAME/checkpoints/step-N.pt");
  }
  return train::print_metrics_of(saved.command("eval"), checkpoint, json);
}

}  // namespace lockstep::cli
