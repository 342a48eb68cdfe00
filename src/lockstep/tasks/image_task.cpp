// Tasks on IDX images: MNIST, and anyone's files in that format.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/paths.h"
#include "lockstep/data/catalog.h"
#include "lockstep/data/image_set.h"
#include "lockstep/data/pixels/image_file.h"
#include "lockstep/tasks/balance.h"
#include "lockstep/tasks/task.h"

namespace lockstep::tasks {
namespace {

struct ImageRecipe {
  struct Files {
    std::string train_images, train_labels, eval_images, eval_labels;
  };
  Files files;
  int64_t classes = 0;            // 0 = counted from the labels
  std::string normalize;          // standard | none | mean_std
  std::vector<double> mean, std;  // with mean_std, one per channel
};

void load_pair(const std::string& images, const std::string& labels, int64_t classes,
               const std::string& stage, Arena& arena, SharedSet& set) {
  set.tensors.push_back(read_idx_images(data::stage_file(images, stage), arena));
  set.tensors.push_back(read_idx_labels(data::stage_file(labels, stage), arena, classes));
  const auto count = set.tensors.end()[-2].size(0), labelled = set.tensors.back().size(0);
  if (count != labelled)
    throw InputError(format("{} images but {} labels", count, labelled), images + " and " + labels,
                     "give both files of the same set");
}

SharedSet load_files(const ImageRecipe& recipe, const std::string& stage, Arena& arena) {
  const auto& files = recipe.files;
  SharedSet set;
  load_pair(files.train_images, files.train_labels, recipe.classes, stage, arena, set);
  load_pair(files.eval_images, files.eval_labels, recipe.classes, stage, arena, set);
  if (set.tensors[0].sizes().slice(1) != set.tensors[2].sizes().slice(1))
    throw InputError("training and evaluation images differ in size",
                     files.train_images + " and " + files.eval_images, "scale them to one size first");
  return set;
}

// Mean and deviation of each channel over all pixels, exact: a count of each of the 256 values.
at::Tensor standard_table(const at::Tensor& images) {
  std::vector<double> means, deviations;
  const auto values = at::arange(256, at::kDouble) / 255;
  for (int64_t c = 0; c < images.size(1); ++c) {
    std::vector<int64_t> counts(256);
    const int64_t plane = images.size(2) * images.size(3);
    for (int64_t i = 0; i < images.size(0); ++i) {
      const auto* pixel = images.const_data_ptr<uint8_t>() + (i * images.size(1) + c) * plane;
      for (int64_t p = 0; p < plane; ++p) ++counts[pixel[p]];
    }
    const auto share = at::tensor(counts, at::kDouble) / static_cast<double>(images.size(0) * plane);
    const double mean = (share * values).sum().item<double>();
    const double variance = (share * (values - mean).square()).sum().item<double>();
    means.push_back(mean);
    deviations.push_back(variance > 0 ? std::sqrt(variance) : 1);
  }
  return normalize_table(means, deviations);
}

at::Tensor table_for(const ImageRecipe& recipe, const at::Tensor& images) {
  if (recipe.normalize == "standard") return standard_table(images);
  const size_t channels = images.size(1);
  if (recipe.normalize == "none")
    return normalize_table(std::vector(channels, 0.0), std::vector(channels, 1.0));
  return normalize_table(recipe.mean, recipe.std);
}

void check_size(const at::Tensor& images, const std::vector<int64_t>& trained, const std::string& file) {
  const auto shape = images.sizes().slice(1);
  if (shape == at::IntArrayRef(trained)) return;
  throw InputError(format("the image is {}x{} with {} channels, but the model was trained on {}x{} with {}",
                          shape[1], shape[2], shape[0], trained[1], trained[2], trained[0]),
                   file, "scale the image first");
}

class ImageTask : public Task {
 public:
  using Recipe = ImageRecipe (*)(const TaskConfig& settings, Look look);
  explicit ImageTask(Recipe recipe) : recipe_(recipe) {}

  TaskData data(const TaskConfig& settings, const NodeShare& node) override {
    const auto set = share_on_node(node, [&](Arena& arena) {
      return load_files(recipe_(settings, Look::all), settings.data.stage, arena);
    });
    const auto recipe = recipe_(settings, Look::no);
    const auto &train_x = set.tensors[0], &train_y = set.tensors[1], &eval_x = set.tensors[2],
               &eval_y = set.tensors[3];
    table_ = table_for(recipe, train_x);
    const int64_t counted = std::max(train_y.max().item<int64_t>(), eval_y.max().item<int64_t>()) + 1;
    TaskData data;
    data.train = std::make_shared<ImageSet>(train_x, train_y, table_);
    data.eval = std::make_shared<ImageSet>(eval_x, eval_y, table_);
    data.input_shape = train_x.sizes().slice(1).vec();
    data.class_names = numbered(recipe.classes ? recipe.classes : counted);
    add_balance(data, train_y, eval_y, settings.task);
    return data;
  }

  std::shared_ptr<const Dataset> evaluation(const TaskConfig& settings, const TaskData& known,
                                            const NodeShare& node) override {
    const auto set = share_on_node(node, [&](Arena& arena) {
      const auto files = recipe_(settings, Look::evaluation).files;
      SharedSet read;
      load_pair(files.eval_images, files.eval_labels, static_cast<int64_t>(known.class_names.size()),
                settings.data.stage, arena, read);
      check_size(read.tensors[0], known.input_shape, files.eval_images);
      return read;
    });
    return std::make_shared<ImageSet>(set.tensors[0], set.tensors[1], table_);
  }

  /// An IDX file of images, or a PNG.
  std::shared_ptr<const Dataset> inputs(const TaskConfig&, const TaskData& data,
                                        const std::string& path) const override {
    const auto file = base::find_path(path);
    Arena arena;
    const auto images =
        data::is_png(file) ? data::read_png(file, data.input_shape[0]) : read_idx_images(file, arena);
    check_size(images, data.input_shape, file);
    return std::make_shared<ImageSet>(images, at::Tensor(), table_);
  }

  std::optional<TaskMemory> memory() const override { return TaskMemory{{table_}, {}}; }

  void recall(const TaskMemory& memory) override {
    if (memory.tensors.size() != 1 || memory.tensors[0].dim() != 2 || memory.tensors[0].size(1) != 256 ||
        memory.tensors[0].scalar_type() != at::kFloat)
      refuse_memory("images");
    table_ = memory.tensors[0];
  }

  KnownLoss known_loss() const override { return KnownLoss::cross_entropy; }

 private:
  Recipe recipe_;
  at::Tensor table_;  // what each byte becomes
};

// Images in MNIST's file format, named by task.images and task.labels.

ImageRecipe idx(const TaskConfig& settings, Look look) {
  const auto& task = settings.task;
  ImageRecipe recipe{
      .files = {}, .classes = task.classes, .normalize = task.normalize, .mean = task.mean, .std = task.std};
  if (look == Look::no) return recipe;
  if (task.images.size() != 2 || task.labels.size() != 2)
    throw InputError(
        "the idx task needs two files of images and two of labels, for training and evaluation",
        "task.images, task.labels",
        "set images: [train-images.gz, eval-images.gz] and labels: [train-labels.gz, eval-labels.gz]");
  recipe.files = {data_path(settings, task.images[0]), data_path(settings, task.labels[0]),
                  data_path(settings, task.images[1]), data_path(settings, task.labels[1])};
  return recipe;
}

ImageRecipe mnist(const TaskConfig& settings, Look look) {
  ImageRecipe recipe{.files = {}, .classes = 10, .normalize = "mean_std", .mean = {0.1307}, .std = {0.3081}};
  if (look == Look::no) return recipe;
  const auto root = base::find_path(settings.data.root.empty() ? "data/mnist" : settings.data.root);
  const auto file = [&root](const std::string& name) {
    return data::find_data_file(root, {name, name + ".gz"}, "mnist");
  };
  if (look == Look::all) {
    recipe.files.train_images = file("train-images-idx3-ubyte");
    recipe.files.train_labels = file("train-labels-idx1-ubyte");
  }
  recipe.files.eval_images = file("t10k-images-idx3-ubyte");
  recipe.files.eval_labels = file("t10k-labels-idx1-ubyte");
  return recipe;
}

}  // namespace

LOCKSTEP_TASK(
    idx, .help = "your images: `images` and `labels`, each [train, evaluation]",
    .reads = {"images", "labels", "classes", "normalize", "mean", "std"}, .defaults = {{"model.name", "mlp"}},
    .make = [] { return std::make_unique<ImageTask>(idx); })

LOCKSTEP_TASK(
    mnist, .help = "70,000 digits in data.root; torchvision's folder layout works too",
    .defaults = {{"model.name", "simple_cnn"}}, .make = [] { return std::make_unique<ImageTask>(mnist); })

}  // namespace lockstep::tasks
