#pragma once
// Tasks on CSV tables: Pima, and anyone's.

#include <string>
#include <vector>

#include "lockstep/data/csv.h"
#include "lockstep/tasks/task.h"

namespace lockstep::tasks {

struct TableRecipe {
  std::string file;
  std::string eval_file;  // empty = a part of `file`
  CsvOptions csv;
  bool detect_header = false;  // a first line that does not begin with a number names the columns
  std::vector<std::string> names =
      {};  // of the features, to speak of; they must be as many. Empty = any table
  std::vector<int64_t> zero_is_missing = {};  // features whose zeros become the training rows' median
  double eval_fraction = 0.2;
  std::string normalize = "standard";  // standard | none | mean_std
  std::vector<double> mean = {}, std = {};
  std::string model = "mlp";  // the task's own
};

/// What is done to each column: (value, or `fill` where a zero means missing, or `missing` where there is
/// none;
/// - mean) / std. All double [columns].
struct Preprocessing {
  at::Tensor fill;  // NaN where zeros are values
  at::Tensor mean, std;
  at::Tensor missing = {};  // undefined where such cells are refused
};

class TableTask : public Task {
 public:
  /// `look` is set where the files may be looked for: on the node's first rank.
  using Recipe = TableRecipe (*)(const TaskConfig& settings, bool look);
  explicit TableTask(Recipe recipe) : recipe_(recipe) {}
  /// The rows kept for evaluation are drawn class by class (stratified), seeded by run.seed; each set keeps
  /// the file's order. Fills and normalisation are computed on the training rows alone.
  TaskData data(const TaskConfig& settings, const NodeShare& node) override;
  std::shared_ptr<const Dataset> evaluation(const TaskConfig& settings, const TaskData& known,
                                            const NodeShare& node) override;
  /// Of numbers the mean squared error.
  at::Tensor loss(const at::Tensor& output, const at::Tensor& target,
                  const LossOptions& options) const override;
  std::unique_ptr<Metrics> metrics(const TaskData& data) const override;
  std::shared_ptr<Net> model(const TaskConfig& settings, const TaskData& data) override;
  /// A CSV of the features, with or without the label's column.
  std::shared_ptr<const Dataset> inputs(const TaskConfig& settings, const TaskData& data,
                                        const std::string& path) const override;
  std::optional<TaskMemory> memory() const override;
  void recall(const TaskMemory& memory) override;
  KnownLoss known_loss() const override {
    return regression_ ? KnownLoss::mean_squared_error : KnownLoss::cross_entropy;
  }

 private:
  Recipe recipe_;
  std::vector<std::string> columns_;
  Preprocessing treatment_;
  bool regression_ = false;
};

}  // namespace lockstep::tasks
