// lockstep export: a checkpoint as a file for Python.
#include "trainer/saved_model/saved_model.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <functional>

#include "lockstep/base/error.h"
#include "lockstep/base/files/output.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/paths.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/exported/weights.h"
#include "lockstep/models/bert_folder.h"
#include "trainer/config/keys.h"
#include "trainer/setup/saved.h"
#include "trainer/setup/setup.h"

namespace lockstep::train {
namespace {

constexpr const char* kOutput = "name a new folder with --output";
constexpr const char* kPt2 = "name another file with --pt2";

void on_first(const Team& team, const std::function<void()>& work) {
  team.from_first([&] {
    work();
    return std::string();
  });
}

BertForSequenceClassification& require_bert(Net& net) {
  if (auto* bert = dynamic_cast<BertForSequenceClassification*>(&net)) return *bert;
  throw InputError("--output works only with model.name: bert", "model.name",
                   "for other models, Python reads the checkpoint: torch.load(PATH, weights_only=True)");
}

BertFolder folder_of(const Setup& setup) {
  const auto pretrained = base::find_path(setup.settings.model.path);
  const auto vocabulary = base::find_path(setup.settings.task.vocabulary);
  return {.labels = setup.data.class_names,
          .regression = setup.data.regression,
          .pretrained = pretrained,
          .tokenizer = vocabulary.empty() ? pretrained : vocabulary};
}

/// An exported model, and where its copy goes.
struct Rewrite {
  std::string original, copy;
};

std::vector<Rewrite> rewrites_of(const Settings& settings, const std::string& file) {
  const auto& model = settings.model;
  if (!config::is_read("model.eval_path", settings))
    throw InputError("--pt2 works only with model.name: exported", "model.name",
                     "for other models, Python reads the checkpoint: torch.load(PATH, weights_only=True)");
  std::vector<Rewrite> all = {{base::find_path(model.path), file}};
  const auto stem = file.substr(0, file.size() - kPt2Ending.size());
  if (!model.eval_path.empty()) all.push_back({base::find_path(model.eval_path), stem + ".eval.pt2"});
  return all;
}

// A graph is not changed, so what it answers stays as it was trained.
void tell_scale(Setup& setup, const Tree& tree) {
  if (!recall(setup, tree) || !setup.data.label_scale) return;
  const auto& scale = *setup.data.label_scale;
  log::info(
      format("the model predicts a normalized label; the label is output * {} + {}", scale.std, scale.mean));
}

}  // namespace

int export_folder(const Command& command, const std::string& checkpoint, const std::string& output) {
  auto setup = join_job(command);
  const auto& team = *setup.team;
  on_first(team, [&] { base::check_new_folder(output, kOutput); });
  const auto [path, tree] = read_saved(team, checkpoint);
  if (!recall(setup, tree)) load_data(setup);
  const auto net = seeded_model(setup);
  auto& bert = require_bert(*net);
  load_module_state_dict(*net, find_state_dict(tree, path), path);
  // transformers knows no scale of a label
  if (const auto& scale = setup.data.label_scale) bert.scale_logits(scale->std, scale->mean);
  on_first(team, [&] { write_bert_folder(bert, folder_of(setup), output); });
  if (team.first()) output::line("wrote the weights of " + path + " to " + output);
  return kDone;
}

int export_pt2(const Command& command, const std::string& checkpoint, const std::string& file) {
  auto setup = join_job(command);
  const auto& team = *setup.team;
  const auto all = rewrites_of(setup.settings, file);
  on_first(team, [&] {  // no copy may take the place of any original
    for (const auto& written : all)
      for (const auto& read : all) exported::check_rewrite(read.original, written.copy, kPt2);
  });
  const auto saved = read_saved(team, checkpoint);
  const auto state_dict = find_state_dict(saved.tree, saved.path);
  on_first(team, [&] {
    for (const auto& [original, copy] : all)
      exported::rewrite_weights(original, state_dict, copy, saved.path);
  });
  tell_scale(setup, saved.tree);
  for (const auto& [original, copy] : all)
    if (team.first()) output::line("wrote the weights of " + saved.path + " to " + copy);
  return kDone;
}

}  // namespace lockstep::train
