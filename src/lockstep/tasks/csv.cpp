// Anyone's table of numbers with a class column, described by the keys of `task`.
#include "lockstep/base/error.h"
#include "lockstep/base/paths.h"
#include "lockstep/tasks/table_task.h"

namespace lockstep::tasks {
namespace {

std::string table_path(const std::string& root, const std::string& file) {
  return base::find_path(root.empty() || file.empty() || file.starts_with('/') ? file : root + "/" + file);
}

Missing missing_of(const std::string& name) {
  return name == "drop" ? Missing::drop : name == "mean" ? Missing::mean : Missing::refuse;
}

TableRecipe csv(const TaskConfig& settings, bool) {
  const auto& task = settings.task;
  if (task.file.empty())
    throw InputError("the csv task needs a file", "task.file", "task: {name: csv, file: my.csv}");
  return {.file = table_path(settings.data.root, task.file),
          .eval_file = table_path(settings.data.root, task.eval_file),
          .csv = {.delimiter = task.delimiter.empty() ? ',' : task.delimiter[0],
                  .header = task.header,
                  .numbers = task.is_regression(),
                  .label = task.label,
                  .features = task.features,
                  .ignore = task.ignore,
                  .missing = missing_of(task.missing),
                  .classes = task.classes},
          .eval_fraction = task.eval_fraction,
          .normalize = task.normalize,
          .mean = task.mean,
          .std = task.std};
}

}  // namespace

LOCKSTEP_TASK(
    csv, .help = "your table: classes, or with `kind: regression` a number",
    .reads = {"kind", "file", "eval_file", "delimiter", "label", "features", "ignore", "missing", "header",
              "eval_fraction", "classes", "normalize", "mean", "std", "normalize_label"},
    .defaults = {{"model.name", "mlp"}}, .make = [] { return std::make_unique<TableTask>(csv); })

}  // namespace lockstep::tasks
