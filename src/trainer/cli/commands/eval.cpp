// lockstep eval: the metrics of any checkpoint, at any world size.
#include "lockstep/base/error.h"
#include "trainer/cli/command_group.h"
#include "trainer/cli/options.h"
#include "trainer/saved_model/saved_model.h"

namespace lockstep::cli {

// lockstep predict: classes, probabilities or numbers of new samples.

int run_predict(const std::vector<std::string>& args) {
  SavedOptions saved;
  train::PredictOptions wanted;
  Options options(
      "predict", "classes and probabilities of new samples",
      {"lockstep predict runs/mnist --input seven.png",
       "lockstep predict configs/pima.yaml --checkpoint PATH --input patients.csv --output out.json",
       "echo 'I liked it' | lockstep predict runs/text --input -"});
  saved.add_to(options);
  options.add(
      "input", wanted.input, "FILE",
      "IDX, IDX.gz, PNG, JPEG, a folder of images, CSV, TSV, JSONL or a text a line, as the task reads them; "
      "- = standard input");
  options.add("output", wanted.output, "FILE", "where to write; standard output unless given");
  options.add("format", wanted.format, "csv|json", "how to write; by the output's name, else csv");
  if (!options.parse(args)) return kDone;
  wanted.checkpoint = saved.checkpoint();
  if (wanted.checkpoint.empty() || wanted.input.empty()) {
    throw InputError("predict needs a checkpoint and an input", "--checkpoint, --input",
                     "lockstep predict runs/NAME --input FILE; see lockstep predict --help");
  }
  auto command = saved.command("predict");
  command.must_match.emplace_back("--input", wanted.input);
  return train::predict(command, wanted);
}

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
