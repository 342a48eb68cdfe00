// lockstep predict: classes, probabilities or numbers of new samples.
#include "trainer/saved_model/predict.h"

#include "lockstep/base/error.h"
#include "trainer/cli/options.h"
#include "trainer/cli/saved_options.h"

namespace lockstep::cli {

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
  options.word_more("input");
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

}  // namespace lockstep::cli
