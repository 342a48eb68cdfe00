// MultiNLI (Williams, Nangia, Bowman: A Broad-Coverage Challenge Corpus for Sentence Understanding, 2018):
// does the second sentence follow from the first? As its authors ship it, or as GLUE does.
#include "lockstep/base/paths.h"
#include "lockstep/data/find_files.h"
#include "lockstep/tasks/text_task.h"

namespace lockstep::tasks {
namespace {

TextFile find(const std::string& root, const std::string& set, const std::string& part = {}) {
  std::vector<std::string> names;
  for (const std::string& name :
       {"multinli_1.0_" + set + ".jsonl", "multinli_1.0_" + set + ".txt", set + ".jsonl", set + ".tsv"})
    names.insert(names.end(), {name, name + ".gz"});
  TextFile file{.path = data::find_data_file(root, names), .name = part};
  file.layout = data::layout_of(file.path, ',');
  file.layout.short_rows = true;  // those of the training set lack the labels of single annotators
  return file;
}

// The classes' order is that of nyu-mll/multi_nli among Hugging Face's data sets.
TextRecipe mnli(const TaskConfig& settings, TextTask::Look look) {
  TextRecipe recipe{.columns = {.texts = {"sentence1", "sentence2"}, .label = "gold_label", .left_out = "-"},
                    .class_names = {"entailment", "neutral", "contradiction"}};
  if (look == TextTask::Look::no) return recipe;
  const auto root = base::find_path(settings.data.root.empty() ? "data/mnli" : settings.data.root);
  if (look == TextTask::Look::all) recipe.train = find(root, "train");
  recipe.eval = {find(root, "dev_matched", "matched"), find(root, "dev_mismatched", "mismatched")};
  return recipe;
}

}  // namespace

LOCKSTEP_TASK(
    mnli,
    .help = "MultiNLI in data.root: pairs of sentences, evaluated on the matched and the mismatched set",
    .reads = {"vocabulary", "max_length", "cache"}, .defaults = {{"model.name", "bert"}},
    .make = [] { return std::make_unique<TextTask>(mnli); })

}  // namespace lockstep::tasks
