// Diabetes among Pima women: 768 rows of 8 numbers and a class, 268 of them positive.
#include <filesystem>

#include "lockstep/base/paths.h"
#include "lockstep/data/find_files.h"
#include "lockstep/tasks/table_task.h"

namespace lockstep::tasks {
namespace {

const std::vector<std::string> kColumns{"pregnancies", "glucose", "pressure", "skin",
                                        "insulin",     "bmi",     "pedigree", "age"};

TableRecipe pima(const TaskConfig& settings, bool look) {
  TableRecipe recipe{.file = {},
                     .eval_file = {},
                     .csv = {.header = false, .label = "-1", .classes = 2},
                     .detect_header = true,
                     .names = kColumns};
  // The file codes a missing measurement as 0; nobody alive has a blood pressure of 0.
  recipe.zero_is_missing = {1, 2, 3, 4, 5};
  recipe.eval_fraction = settings.task.eval_fraction;
  recipe.model = "pima_net";
  if (!look) return recipe;
  const auto& root = settings.data.root.empty() ? "data/pima" : settings.data.root;
  recipe.file = std::filesystem::is_regular_file(base::find_path(root))
                    ? base::find_path(root)
                    : data::find_data_file(root, {"pima-indians-diabetes.csv", "diabetes.csv"});
  return recipe;
}

}  // namespace

LOCKSTEP_TASK(
    pima, .help = "768 rows in data.root: diabetes among Pima women", .reads = {"eval_fraction"},
    .defaults = {{"model.name", "pima_net"}}, .make = [] { return std::make_unique<TableTask>(pima); })

}  // namespace lockstep::tasks
