// lockstep export: a checkpoint's model as a folder of Hugging Face's.
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/files/whole_folder.h"
#include "lockstep/base/paths.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/models/bert_folder.h"
#include "trainer/cli/options.h"
#include "trainer/cli/saved_options.h"
#include "trainer/setup/saved.h"
#include "trainer/setup/setup.h"
#include "trainer/setup/task_memory.h"

namespace lockstep::cli {
namespace {

constexpr const char* kOutput = "name a folder that is not there yet with --output";

const BertForSequenceClassification& require_bert(const Net& net) {
  if (const auto* bert = dynamic_cast<const BertForSequenceClassification*>(&net)) return *bert;
  throw InputError("only the model bert has a folder that transformers loads", "model.name",
                   "of another the checkpoint is what Python reads: torch.load(PATH, weights_only=True)");
}

BertFolder folder_of(const train::Setup& setup) {
  const auto pretrained = base::find_path(setup.settings.model.path);
  const auto vocabulary = base::find_path(setup.settings.task.vocabulary);
  return {.labels = setup.data.class_names,
          .regression = setup.data.regression,
          .pretrained = pretrained,
          .tokenizer = vocabulary.empty() ? pretrained : vocabulary};
}

// transformers knows no scale of a label: the last layer takes it in.
void answer_in_own_unit(Net& net, const LabelScale& scale) {
  const torch::NoGradGuard no_grad;
  auto parameters = net.named_parameters();
  parameters["classifier.weight"].mul_(scale.std);
  parameters["classifier.bias"].mul_(scale.std).add_(scale.mean);
}

int write_folder(const train::Command& command, const std::string& checkpoint, const std::string& output) {
  auto setup = train::join_job(command);
  const auto& team = *setup.team;
  const auto on_first = [&](const auto& work) {
    team.from_first([&] {
      work();
      return std::string();
    });
  };
  on_first([&] { base::check_new_folder(output, kOutput); });
  const auto [path, tree] = train::read_saved(team, checkpoint);
  if (!train::recall(setup, tree)) train::load_data(setup);
  const auto net = train::seeded_model(setup);
  const auto& bert = require_bert(*net);
  load_module_state_dict(*net, find_state_dict(tree, path), path);
  if (const auto& scale = setup.data.label_scale) answer_in_own_unit(*net, *scale);
  on_first([&] { write_bert_folder(bert, folder_of(setup), output); });
  if (team.first()) output::line(path + " is in " + output);
  return kDone;
}

}  // namespace

int run_export(const std::vector<std::string>& args) {
  SavedOptions saved;
  std::string output;
  Options options(
      "export", "a checkpoint as a folder that Hugging Face's transformers loads",
      {"lockstep export runs/bert --output my-model",
       "lockstep export configs/bert.yaml --checkpoint runs/bert/checkpoints/best.pt --output my-model"});
  saved.add_to(options);
  options.add("output", output, "FOLDER", "the folder to write: config.json, model.safetensors, vocab.txt");
  if (!options.parse(args)) return kDone;
  const auto checkpoint = saved.checkpoint();
  if (checkpoint.empty() || output.empty()) {
    throw InputError("export needs a checkpoint and a folder to write", "--checkpoint, --output",
                     "lockstep export runs/NAME --output FOLDER; see lockstep export --help");
  }
  auto command = saved.command("export");
  command.told.emplace_back("--output", output);
  return write_folder(command, checkpoint, output);
}

}  // namespace lockstep::cli
