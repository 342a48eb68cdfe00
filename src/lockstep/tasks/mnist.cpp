// The workshop's task: handwritten digits, 60,000 to train on and 10,000 to evaluate on.
#include "lockstep/base/paths.h"
#include "lockstep/data/find_files.h"
#include "lockstep/tasks/image_task.h"

namespace lockstep::tasks {
namespace {

ImageRecipe mnist(const TaskConfig& settings, ImageTask::Look look) {
  ImageRecipe recipe{.files = {},
                     .classes = 10,
                     .normalize = "mean_std",
                     .mean = {0.1307},
                     .std = {0.3081},
                     .model = "simple_cnn"};
  if (look == ImageTask::Look::no) return recipe;
  const auto root = base::find_path(settings.data.root.empty() ? "data/mnist" : settings.data.root);
  const auto file = [&root](const std::string& name) {
    return data::find_data_file(root, {name, name + ".gz"});
  };
  if (look == ImageTask::Look::all) {
    recipe.files.train_images = file("train-images-idx3-ubyte");
    recipe.files.train_labels = file("train-labels-idx1-ubyte");
  }
  recipe.files.eval_images = file("t10k-images-idx3-ubyte");
  recipe.files.eval_labels = file("t10k-labels-idx1-ubyte");
  return recipe;
}

}  // namespace

LOCKSTEP_TASK(
    mnist, .help = "70,000 digits in data.root; torchvision's folders are found too",
    .defaults = {{"model.name", "simple_cnn"}}, .make = [] { return std::make_unique<ImageTask>(mnist); })

}  // namespace lockstep::tasks
