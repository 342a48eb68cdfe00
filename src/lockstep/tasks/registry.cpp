#include "lockstep/tasks/registry.h"

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace tasks {
namespace {

struct Row {
  const char* name;
  std::unique_ptr<Task> (*make)();
};

constexpr Row kTasks[] = {
    {"mnist", make_mnist_task},
    {"pima", make_pima_task},
    {"idx", make_idx_task},
    {"csv", make_csv_task},
};

}  // namespace

std::vector<std::string> task_names() {
  std::vector<std::string> names;
  for (const auto& row : kTasks) names.emplace_back(row.name);
  return names;
}

}  // namespace tasks

std::unique_ptr<Task> make_task(const Settings& settings) {
  const std::string& name = settings.task.name;
  for (const auto& row : tasks::kTasks) {
    if (row.name == name) return row.make();
  }
  if (name.ends_with(".so") || name.find('/') != std::string::npos) return tasks::load_task(name);
  const auto near = base::nearest(name, tasks::task_names());
  throw InputError(
      format("there is no task '{}'", name), "task.name",
      near ? format("did you mean {}?", *near)
           : format("built in: {}; or the path of a shared library", base::join(tasks::task_names(), ", ")));
}

}  // namespace lockstep
