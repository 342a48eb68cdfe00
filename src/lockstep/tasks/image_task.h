#pragma once
// Tasks on IDX images: MNIST, and anyone's files in that format.

#include <string>
#include <vector>

#include "lockstep/tasks/task.h"

namespace lockstep::tasks {

struct IdxFiles {
  std::string train_images, train_labels, eval_images, eval_labels;
};

struct ImageRecipe {
  IdxFiles files;
  int64_t classes = 0;            // 0 = counted from the labels
  std::string normalize;          // standard | none | mean_std
  std::vector<double> mean, std;  // with mean_std, one a channel
  std::string model;              // the task's own
};

class ImageTask : public Task {
 public:
  /// Which files the recipe looks for: on the node's first rank alone.
  enum class Look { no, evaluation, all };
  using Recipe = ImageRecipe (*)(const TaskConfig& settings, Look look);
  explicit ImageTask(Recipe recipe) : recipe_(recipe) {}
  TaskData data(const TaskConfig& settings, const NodeShare& node) override;
  std::shared_ptr<Net> model(const TaskConfig& settings, const TaskData& data) override;
  std::shared_ptr<const Dataset> evaluation(const TaskConfig& settings, const TaskData& known,
                                            const NodeShare& node) override;
  /// An IDX file of images, or a PNG.
  std::shared_ptr<const Dataset> inputs(const TaskConfig& settings, const TaskData& data,
                                        const std::string& path) const override;
  std::optional<TaskMemory> memory() const override { return TaskMemory{{table_}, {}}; }
  void recall(const TaskMemory& memory) override;
  KnownLoss known_loss() const override { return KnownLoss::cross_entropy; }

 private:
  Recipe recipe_;
  at::Tensor table_;  // what each byte becomes
};

}  // namespace lockstep::tasks
