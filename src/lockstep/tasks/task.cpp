#include "lockstep/tasks/task.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/plugins/tables.h"

namespace lockstep {

std::shared_ptr<Net> Task::model(const TaskConfig& settings, const TaskData& data) {
  const auto& defaults = base::require<TaskRow>("task", settings.task.name, "task.name").defaults;
  const auto own = defaults.find("model.name");
  return make_model(settings.model, own == defaults.end() ? "mlp" : own->second, data.input_shape,
                    static_cast<int64_t>(data.class_names.size()));
}

at::Tensor Task::loss(const at::Tensor& output, const at::Tensor& target, const LossOptions& options) const {
  if (known_loss() == KnownLoss::mean_squared_error) return at::mse_loss(output, target, options.reduction);
  return at::cross_entropy_loss(output, target, options.class_weights, options.reduction,
                                /*ignore_index=*/-100, options.label_smoothing);
}

std::unique_ptr<Metrics> Task::metrics(const TaskData& data) const {
  if (data.regression)
    return std::make_unique<NumberMetrics>(data.label_scale.value_or(LabelScale{}), data.eval->size());
  return std::make_unique<ClassMetrics>(data.class_names, data.eval->size());
}

std::shared_ptr<const Dataset> Task::inputs(const TaskConfig& settings, const TaskData&,
                                            const std::string&) const {
  throw InputError(format("the task '{}' cannot read new inputs", settings.task.name), "task.name",
                   "override Task::inputs");
}

std::unique_ptr<Task> make_task(const TaskConfig& settings) {
  const auto& row = base::require<TaskRow>("task", settings.task.name, "task.name");
  return base::made(row.make(), "task", settings.task.name, "task.name");
}

}  // namespace lockstep
