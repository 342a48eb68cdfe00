#pragma once
// A task: data, model, loss and metrics under one name, built in or a shared library.

#include <ATen/core/Reduction.h>
#include <ATen/core/Tensor.h>
#include <torch/version.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/format.h"
#include "lockstep/base/table.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/node_share.h"
#include "lockstep/models/model.h"
#include "lockstep/options/settings.h"
#include "lockstep/tasks/actor.h"
#include "lockstep/tasks/metrics.h"

namespace lockstep {

/// The sets for training and evaluation, and facts about them. If a task acts, `train` has a few samples of
/// that kind, to try a model with, and there is no `eval`.
struct TaskData {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> eval;
  std::vector<int64_t> input_shape;      // of one sample
  std::vector<std::string> class_names;  // one per class
  bool regression = false;               // the model predicts one number, and class_names has its name
  /// The scale of a regression's labels in the sets. Predictions and metrics are in the label's unit.
  std::optional<LabelScale> label_scale = {};
  std::string label = {};                  // the column of the labels, for task.label
  at::Tensor class_weights;                // undefined unless the task weighs its classes
  std::vector<std::string> notes;          // lines for the log, such as the class balance
  std::vector<std::string> warnings = {};  // lines for the log if something looks wrong
  std::string identity;  // of the samples; if it differs between ranks, the run ends. Empty = not compared
};

/// What inputs() needs from the training data besides TaskData's shape and names. Checkpoints contain it.
struct TaskMemory {
  std::vector<at::Tensor> tensors;
  std::vector<std::string> texts;
};

/// How to compute a loss.
struct LossOptions {
  double label_smoothing = 0;
  at::Tensor class_weights;  // on the output's device; may be undefined
  at::Reduction::Reduction reduction = at::Reduction::Mean;
};

/// A loss that lockstep can compute with its own kernels.
enum class KnownLoss { none, cross_entropy, mean_squared_error };

/// One object per run. lockstep calls data() first, once on every rank, and model() twice: the first model
/// only tries the task's samples. For `predict` and `eval`, it calls recall() instead of data() if the
/// checkpoint has a memory; TaskData then has only input_shape and the classes.
class Task {
 public:
  virtual ~Task() = default;
  /// The sets, read once per node.
  virtual TaskData data(const TaskConfig& settings, const NodeShare& node) = 0;
  /// The model, with initial parameters from torch's generator. Without model.name it is the row's default,
  /// or mlp.
  virtual std::shared_ptr<Net> model(const TaskConfig& settings, const TaskData& data);
  /// Unless overridden, the mean squared error if known_loss() says so, and cross-entropy otherwise.
  virtual at::Tensor loss(const at::Tensor& output, const at::Tensor& target,
                          const LossOptions& options) const;
  /// Unless overridden, NumberMetrics for a regression, and ClassMetrics otherwise.
  virtual std::unique_ptr<Metrics> metrics(const TaskData& data) const;
  /// New samples from a file, treated as data()'s were, for `predict`; targets are undefined.
  virtual std::shared_ptr<const Dataset> inputs(const TaskConfig& settings, const TaskData& data,
                                                const std::string& path) const;
  /// Only the evaluation set, after recall(), so that `eval` reads no training set. nullptr unless
  /// overridden: `eval` then calls data().
  virtual std::shared_ptr<const Dataset> evaluation(const TaskConfig&, const TaskData& /*known*/,
                                                    const NodeShare&) {
    return nullptr;
  }
  /// After data(). nullopt unless overridden: `predict` then needs the training data.
  virtual std::optional<TaskMemory> memory() const { return std::nullopt; }
  /// InputError if the memory is another task's.
  virtual void recall(const TaskMemory&) {}
  /// After data(): the loss, if loss() is exactly that. Otherwise lockstep calls loss().
  virtual KnownLoss known_loss() const { return KnownLoss::none; }
  /// After data(), for a task that acts: this rank's actor.
  virtual std::unique_ptr<Actor> actor(const TaskConfig&, const ActorRank&) const { return nullptr; }
};

/// By settings.task.name: a built-in name, or the path of a shared library.
std::unique_ptr<Task> make_task(const TaskConfig& settings);

/// A row of the table of tasks.
using TaskRow = RowOf<std::unique_ptr<Task>()>;

}  // namespace lockstep

/// Adds a task, in the file that defines it: LOCKSTEP_TASK(rings, .help = "...", .make = make_rings), or in
/// short LOCKSTEP_TASK(RingsTask) for a class that is default-constructible and may read every key of `task`.
#define LOCKSTEP_TASK(NAME, ...)                                                    \
  LOCKSTEP_ROW(task, "task", NAME, lockstep::TaskRow, lockstep::kTaskSettingsBytes, \
               LOCKSTEP_TASK_FIELDS##__VA_OPT__(_GIVEN)(NAME __VA_OPT__(, ) __VA_ARGS__))
#define LOCKSTEP_TASK_FIELDS_GIVEN(NAME, ...) __VA_ARGS__
#define LOCKSTEP_TASK_FIELDS(TYPE) \
  .help = #TYPE, .reads = {"*"}, .make = [] { return std::unique_ptr<lockstep::Task>(new TYPE()); }
