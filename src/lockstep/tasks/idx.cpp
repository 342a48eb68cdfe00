// Anyone's images in MNIST's file format, named by task.images and task.labels.
#include "lockstep/base/error.h"
#include "lockstep/base/paths.h"
#include "lockstep/tasks/image_task.h"

namespace lockstep::tasks {
namespace {

std::string idx_path(const std::string& root, const std::string& file) {
  return base::find_path(root.empty() || file.starts_with('/') ? file : root + "/" + file);
}

ImageRecipe idx(const TaskConfig& settings, ImageTask::Look look) {
  const auto& task = settings.task;
  ImageRecipe recipe{.files = {},
                     .classes = task.classes,
                     .normalize = task.normalize,
                     .mean = task.mean,
                     .std = task.std,
                     .model = "mlp"};
  if (look == ImageTask::Look::no) return recipe;
  if (task.images.size() != 2 || task.labels.size() != 2) {
    throw InputError(
        "the idx task needs two files of images and two of labels: to train on and to evaluate on",
        "task.images, task.labels",
        "images: [train-images.gz, eval-images.gz], labels: [train-labels.gz, eval-labels.gz]");
  }
  const auto& root = settings.data.root;
  recipe.files = {idx_path(root, task.images[0]), idx_path(root, task.labels[0]),
                  idx_path(root, task.images[1]), idx_path(root, task.labels[1])};
  return recipe;
}

}  // namespace

LOCKSTEP_TASK(
    idx, .help = "your images: `images` and `labels`, each [train, evaluation]",
    .reads = {"images", "labels", "classes", "normalize", "mean", "std"}, .defaults = {{"model.name", "mlp"}},
    .make = [] { return std::make_unique<ImageTask>(idx); })

}  // namespace lockstep::tasks
