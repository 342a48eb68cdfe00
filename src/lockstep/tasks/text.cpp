// Anyone's file of texts with a class or a number each, described by the keys of `task`.
#include "lockstep/base/error.h"
#include "lockstep/base/paths.h"
#include "lockstep/tasks/text_task.h"

namespace lockstep::tasks {
namespace {

TextFile file_at(const TaskConfig& settings, const std::string& name) {
  const auto& root = settings.data.root;
  TextFile file{.path = base::find_path(root.empty() || name.starts_with('/') ? name : root + "/" + name)};
  file.layout = data::layout_of(name, settings.task.delimiter.empty() ? ',' : settings.task.delimiter[0]);
  file.layout.header = settings.task.header;
  return file;
}

TextRecipe text(const TaskConfig& settings, TextTask::Look) {
  const auto& task = settings.task;
  if (task.file.empty())
    throw InputError("the text task needs a file", "task.file", "task: {name: text, file: my.csv}");
  if (task.text.size() > 2)
    throw InputError(format("{} columns of texts cannot be read together", task.text.size()), "task.text",
                     "name one, or the two of a pair");
  TextRecipe recipe{.train = file_at(settings, task.file),
                    .columns = {.texts = task.text, .label = task.label, .numbers = task.is_regression()}};
  if (!task.eval_file.empty()) recipe.eval = {file_at(settings, task.eval_file)};
  return recipe;
}

}  // namespace

LOCKSTEP_TASK(
    text,
    .help =
        "your texts, one or two a sample, in a CSV, TSV or JSONL file: classes, or with "
        "`kind: regression` a number",
    .reads = {"kind", "file", "eval_file", "delimiter", "text", "label", "header", "eval_fraction", "classes",
              "normalize_label", "vocabulary", "max_length", "cache"},
    .defaults = {{"model.name", "bert"}}, .make = [] { return std::make_unique<TextTask>(text); })

}  // namespace lockstep::tasks
