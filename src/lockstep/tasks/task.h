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

/// The sets that a task trains and evaluates on, and what is known of them. Of a task that acts `train` are a
/// few samples of the kind that acting brings, to try a model on, and there is no `eval`.
struct TaskData {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> eval;
  std::vector<int64_t> input_shape;      // of one sample
  std::vector<std::string> class_names;  // as many as there are classes
  bool regression = false;               // one number is predicted, and class_names holds its name
  /// Of a regression whose sets hold the label by it: answers and metrics are in the label's own unit.
  std::optional<LabelScale> label_scale = {};
  std::string label = {};                  // the column that the labels are from, as task.label names it
  at::Tensor class_weights;                // undefined unless the task weighs its classes
  std::vector<std::string> notes;          // lines for the log: class balance, treated values, ...
  std::vector<std::string> warnings = {};  // the same, where something looks wrong
  std::string identity;  // of the samples, the same on all ranks or an error; empty = not asked
};

/// What inputs() needs of the training data besides TaskData's shape and names. It goes into the checkpoints.
struct TaskMemory {
  std::vector<at::Tensor> tensors;
  std::vector<std::string> texts;
};

/// What a loss is asked for.
struct LossOptions {
  double label_smoothing = 0;
  at::Tensor class_weights;  // on the output's device; may be undefined
  at::Reduction::Reduction reduction = at::Reduction::Mean;
};

/// A loss that can be computed without asking the task, and trained with kernels of our own.
enum class KnownLoss { none, cross_entropy, mean_squared_error };

/// One object a run. data() is called first, once on every rank; model() and inputs() may rely on it, and
/// model() is called twice: the first one only tries the task's samples. For `predict` and `eval` recall()
/// comes in data()'s place where the checkpoint holds a memory: TaskData then has only input_shape and the
/// classes.
class Task {
 public:
  virtual ~Task() = default;
  /// The sets, read once a node.
  virtual TaskData data(const TaskConfig& settings, const NodeShare& node) = 0;
  /// The model with its initial parameters, drawn from torch's generator as the caller seeded it. Without
  /// model.name it is the row's default, or mlp.
  virtual std::shared_ptr<Net> model(const TaskConfig& settings, const TaskData& data);
  /// Unless overridden, the mean squared error if known_loss() says so, and cross-entropy otherwise.
  virtual at::Tensor loss(const at::Tensor& output, const at::Tensor& target,
                          const LossOptions& options) const;
  /// Unless overridden, NumberMetrics for a regression, and ClassMetrics otherwise.
  virtual std::unique_ptr<Metrics> metrics(const TaskData& data) const;
  /// New samples from a file, treated as data()'s were, for `predict`; targets are undefined.
  virtual std::shared_ptr<const Dataset> inputs(const TaskConfig& settings, const TaskData& data,
                                                const std::string& path) const;
  /// data()'s evaluation set alone, after recall() of `known`: `eval` then reads no training set. nullptr
  /// unless overridden: it calls data().
  virtual std::shared_ptr<const Dataset> evaluation(const TaskConfig&, const TaskData& /*known*/,
                                                    const NodeShare&) {
    return nullptr;
  }
  /// After data(). nullopt unless overridden: `predict` then needs the training data.
  virtual std::optional<TaskMemory> memory() const { return std::nullopt; }
  /// Throws InputError where the memory is not one of this task's.
  virtual void recall(const TaskMemory&) {}
  /// After data(): what loss() is, where it is no more than that. A task that says nothing is asked each
  /// time.
  virtual KnownLoss known_loss() const { return KnownLoss::none; }
  /// After data(), for a task whose samples come from acting, not from a data set: this rank's actor.
  virtual std::unique_ptr<Actor> actor(const TaskConfig&, const ActingRank&) const { return nullptr; }
};

/// The task that settings.task.name says: a built-in name, or the path of a shared library.
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
