// lockstep eval, predict and export: what a checkpoint's model is used for.
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/paths.h"
#include "trainer/cli/commands.h"
#include "trainer/cli/options.h"
#include "trainer/saved_model/saved_model.h"

namespace lockstep::cli {

namespace {

// By its name where that is enough: rank 0 alone has to see a run's folder.
bool names_config(const std::string& path) {
  std::error_code none;
  return path.ends_with(".yaml") || path.ends_with(".yml") ||
         std::filesystem::is_regular_file(base::find_path(path), none);
}

// What eval, predict and export have in common: a config and a checkpoint, or a run's folder for both.
class SavedOptions {
 public:
  // CONFIG.yaml, --checkpoint, --set and --launcher, which point into this object.
  void add_to(Options& options) {
    options.positional("CONFIG.yaml|RUN_FOLDER", command_.config,
                       "a config file, or a run folder with a config and a checkpoint");
    options.add("checkpoint", checkpoint_, "PATH",
                "a run folder (its best checkpoint, else its newest), a .pt or a safetensors file");
    options.add("set", command_.sets, "KEY=VALUE", "override a key; repeatable");
    options.launcher(command_.launcher);
  }

  // Without --checkpoint, the run's folder that stands in the config's place; empty where that is a file.
  std::string checkpoint() const {
    if (!checkpoint_.empty()) return checkpoint_;
    return names_config(command_.config) ? "" : command_.config;
  }

  // With what has to be the same on all ranks.
  train::Command command(const std::string& name) const {
    auto command = command_;
    command.elsewhere = !names_config(command_.config);
    command.program = version_line();
    command.whole_model = true;
    command.must_match = {{"the command", name}, {"--checkpoint", checkpoint()}};
    return command;
  }

 private:
  train::Command command_;
  std::string checkpoint_;
};

struct ExportOptions {
  std::string folder, file;  // one of them
};

void check_export(const std::string& checkpoint, const ExportOptions& asked) {
  if (checkpoint.empty() || asked.folder.empty() == asked.file.empty())
    throw InputError("export needs a checkpoint, and one of --pt2 and --output",
                     "--checkpoint, --output, --pt2",
                     "run lockstep export RUN_FOLDER --pt2 FILE.pt2 (exported) or --output FOLDER (bert)");
  if (asked.file.empty() || asked.file.ends_with(train::kPt2Ending)) return;
  throw InputError("the file's name does not end in .pt2", "--pt2 " + asked.file,
                   "run lockstep export RUN_FOLDER --pt2 FILE.pt2");
}

}  // namespace

// lockstep predict: classes, probabilities or numbers of new samples.

int run_predict(const std::vector<std::string>& args) {
  SavedOptions saved;
  train::PredictOptions wanted;
  Options options(
      "predict", "predicts classes and probabilities of new samples",
      {"lockstep predict runs/mnist --input seven.png",
       "lockstep predict configs/pima.yaml --checkpoint PATH --input patients.csv --output out.json",
       "echo 'I liked it' | lockstep predict runs/text --input -"});
  saved.add_to(options);
  options.add("input", wanted.input, "FILE",
              "IDX, IDX.gz, PNG, JPEG, an image folder, CSV, TSV, NPY, NPZ, JSONL or text lines; - = "
              "standard input");
  options.add("output", wanted.output, "FILE", "the file to write (default: standard output)");
  options.add("format", wanted.format, "csv|json", "format (default: from --output's extension, else csv)");
  if (!options.parse(args)) return kDone;
  wanted.checkpoint = saved.checkpoint();
  const bool lacks_checkpoint = wanted.checkpoint.empty();
  if (lacks_checkpoint || wanted.input.empty())
    throw InputError(lacks_checkpoint ? "predict needs a checkpoint" : "predict needs an input",
                     lacks_checkpoint ? "--checkpoint" : "--input",
                     "run lockstep predict RUN_FOLDER --input FILE; see lockstep predict --help");
  auto command = saved.command("predict");
  command.must_match.emplace_back("--input", wanted.input);
  return train::predict(command, wanted);
}

int run_eval(const std::vector<std::string>& args) {
  SavedOptions saved;
  bool json = false;
  Options options(
      "eval", "computes a checkpoint's metrics, counting each sample once",
      {"lockstep eval runs/mnist", "lockstep eval configs/mnist.yaml --checkpoint runs/mnist --json",
       "mpirun -n 4 lockstep eval configs/mnist.yaml --checkpoint model.safetensors"});
  saved.add_to(options);
  options.flag("json", json, "one JSON object, for programs");
  if (!options.parse(args)) return kDone;
  const auto checkpoint = saved.checkpoint();
  if (checkpoint.empty())
    throw InputError("eval needs a checkpoint", "--checkpoint",
                     "run lockstep eval RUN_FOLDER, or pass --checkpoint PATH");
  return train::print_metrics(saved.command("eval"), checkpoint, json);
}

// lockstep export: a checkpoint's model as what Python reads: a .pt2, or a folder of Hugging Face's.

int run_export(const std::vector<std::string>& args) {
  SavedOptions saved;
  ExportOptions asked;
  Options options(
      "export", "exports a checkpoint for Python: a .pt2, or a folder for BERT",
      {"lockstep export runs/mine --pt2 trained.pt2", "lockstep export runs/bert --output my-model",
       "lockstep export configs/bert.yaml --checkpoint runs/bert/checkpoints/best.pt --output my-model"});
  saved.add_to(options);
  options.add("pt2", asked.file, "FILE",
              "if model.name is exported: write the model with the checkpoint's weights to FILE, and the "
              "evaluation model (model.eval_path) to the same name ending in .eval.pt2");
  options.add("output", asked.folder, "FOLDER",
              "if model.name is bert: the folder to write, with config.json, model.safetensors, vocab.txt");
  if (!options.parse(args)) return kDone;
  const auto checkpoint = saved.checkpoint();
  check_export(checkpoint, asked);
  auto command = saved.command("export");
  command.must_match.emplace_back("--output", asked.folder);
  command.must_match.emplace_back("--pt2", asked.file);
  return asked.file.empty() ? train::export_folder(command, checkpoint, asked.folder)
                            : train::export_pt2(command, checkpoint, asked.file);
}

}  // namespace lockstep::cli
