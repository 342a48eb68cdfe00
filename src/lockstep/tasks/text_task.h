#pragma once
// Tasks on texts, one or two a sample, with a class or a number each: MultiNLI, and anyone's files.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/tasks/metrics.h"
#include "lockstep/tasks/task.h"
#include "lockstep/tasks/tokenise.h"

namespace lockstep::tasks {

// Metrics of a set made of parts that each count alone: MultiNLI's matched and mismatched.

/// The set's consecutive parts, by name and size.
using Parts = std::vector<std::pair<std::string, int64_t>>;

/// A ClassMetrics a part. values() are the first one's, then the others' with their part's name.
class PartMetrics : public Metrics {
 public:
  /// `weights` are the classes' in the loss; may be undefined.
  PartMetrics(const Parts& parts, const std::vector<std::string>& class_names, at::Tensor weights);
  void add(const at::Tensor& output, const at::Tensor& target, at::ArrayRef<int64_t> indices,
           const LossSum& loss) override;
  std::vector<at::Tensor> sums() override;
  std::vector<std::pair<std::string, double>> values() const override;
  std::string report() const override;

 private:
  Parts parts_;
  std::vector<ClassMetrics> metrics_;
  at::Tensor weights_;
};

struct TextFile {
  std::string path = {};
  data::TextLayout layout = {};
  std::string name = {};  // of the part of the evaluation set, where there are several
};

struct TextRecipe {
  TextFile train = {};
  std::vector<TextFile> eval = {};  // empty = a part of `train`
  TextColumns columns = {};
  std::vector<std::string> class_names = {};  // where they are known
};

class TextTask : public Task {
 public:
  /// Which files the recipe looks for: on the node's first rank alone.
  enum class Look { no, evaluation, all };
  using Recipe = TextRecipe (*)(const TaskConfig& settings, Look look);
  explicit TextTask(Recipe recipe) : recipe_(recipe) {}
  /// Each file becomes tokens once a node, which are kept for the next run where a folder takes them. The
  /// samples kept for evaluation are drawn class by class, seeded by run.seed, as a table's are.
  TaskData data(const TaskConfig& settings, const NodeShare& node) override;
  std::shared_ptr<const Dataset> evaluation(const TaskConfig& settings, const TaskData& known,
                                            const NodeShare& node) override;
  std::shared_ptr<Net> model(const TaskConfig& settings, const TaskData& data) override;
  /// Of numbers the mean squared error.
  at::Tensor loss(const at::Tensor& output, const at::Tensor& target,
                  const LossOptions& options) const override;
  /// Of each part of the evaluation set where it has several; in training the first one counts.
  std::unique_ptr<Metrics> metrics(const TaskData& data) const override;
  /// A CSV, TSV or JSON Lines file with the texts' columns; any other is a sample a line, the two texts of a
  /// pair with a tab between them.
  std::shared_ptr<const Dataset> inputs(const TaskConfig& settings, const TaskData& data,
                                        const std::string& path) const override;
  std::optional<TaskMemory> memory() const override;
  void recall(const TaskMemory& memory) override;
  KnownLoss known_loss() const override {
    return regression_ ? KnownLoss::mean_squared_error : KnownLoss::cross_entropy;
  }

 private:
  void check_vocabulary(const std::string& digest, const std::string& folder) const;

  Recipe recipe_;
  std::string vocabulary_;            // its digest
  std::vector<std::string> columns_;  // of the texts
  Parts parts_;                       // of the evaluation set
  bool regression_ = false;
  int64_t longest_ = 0, largest_ = 0;  // sample and token, where the files were read for training
};

}  // namespace lockstep::tasks
