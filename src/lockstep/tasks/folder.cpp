// Anyone's images in a folder a class, PNG or JPEG, decoded as batches are made.
#include <ATen/ATen.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/files/sha256.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"
#include "lockstep/data/image_folder.h"
#include "lockstep/data/image_set.h"
#include "lockstep/data/pixels/image_file.h"
#include "lockstep/options/settings.h"
#include "lockstep/tasks/balance.h"
#include "lockstep/tasks/task.h"

namespace lockstep::tasks {
namespace {

// What a folder of images holds to train and to evaluate on: found, checked and parted, on a node's first
// rank.

struct FolderSets {
  std::vector<std::string> classes;
  data::FoundImages train, eval;
  std::vector<std::string> notes;
};

/// Rows and columns, by task.size.
data::ImageLook folder_look(const TaskConfig& settings);

constexpr size_t kNamed = 5;  // damaged files that a message names

data::ImageFolders layout_of(const TaskConfig& settings) {
  if (settings.data.root.empty())
    throw InputError("the folder task needs a folder", "data.root",
                     "set data.root to the folder that holds train/CLASS/*.jpg or CLASS/*.jpg");
  if (!settings.data.stage.empty())
    throw InputError(
        "data.stage copies single files, and the folder task has a folder of them", "data.stage",
        "unpack an archive of the images on the node's disk in the job script, and set data.root "
        "to that");
  return data::image_layout(base::find_path(settings.data.root));
}

std::string named(const std::vector<data::Damage>& damaged) {
  std::vector<std::string> names;
  for (size_t i = 0; i < damaged.size() && i < kNamed; ++i)
    names.push_back(format("{} ({})", damaged[i].where, damaged[i].what));
  if (damaged.size() > kNamed) names.push_back(format("and {} more", damaged.size() - kNamed));
  return base::join(names, ", ");
}

void check_images(const TaskConfig& settings, data::FoundImages& images) {
  const bool skip = settings.task.damaged == "skip";
  const auto start = std::chrono::steady_clock::now();
  const auto damaged = data::damaged_images(images, skip ? data::ImageCheck::pixels : data::ImageCheck::ends);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto all = images.files.size();
  log::info(format("{} of {} images in {} in {:.1f} s",
                   skip ? "read all" : "looked at the first and last bytes", all,
                   base::printable(images.root, 4096), seconds));
  if (damaged.empty()) return;
  const auto count = format("{} of {} images cannot be read", damaged.size(), all);
  if (!skip)
    throw InputError(count, named(damaged),
                     "fix them or take them out of the folder; task.damaged: skip leaves them out");
  log::warning(format("{}, and are left out: {}", count, named(damaged)));
  data::leave_out(damaged, images);
}

// Found and checked.
data::FoundImages images_of(const TaskConfig& settings, const std::string& root,
                            const std::vector<std::string>& classes, std::vector<std::string>& notes) {
  auto images = data::find_images(root, data::class_folders(root), classes);
  const auto left_out = data::left_out_text(images);
  if (images.files.empty())
    throw InputError("there are no images in the classes' folders", base::printable(root, 4096),
                     left_out.empty() ? "put .png, .jpg or .jpeg files there" : left_out);
  check_images(settings, images);
  if (!left_out.empty()) notes.push_back(left_out);
  return images;
}

std::vector<std::vector<int64_t>> by_class(const data::FoundImages& images, size_t classes) {
  std::vector<std::vector<int64_t>> members(classes);
  for (size_t i = 0; i < images.labels.size(); ++i)
    members[images.labels[i]].push_back(static_cast<int64_t>(i));
  return members;
}

data::FoundImages images_at(const data::FoundImages& from, const std::vector<int64_t>& places) {
  data::FoundImages some{.root = from.root, .files = {}, .labels = {}};
  for (const int64_t place : places) {
    some.files.push_back(from.files[place]);
    some.labels.push_back(from.labels[place]);
  }
  return some;
}

void part(const TaskConfig& settings, FolderSets& sets) {
  const auto all = std::move(sets.train);
  const auto split =
      stratified(by_class(all, sets.classes.size()), settings.task.eval_fraction, settings.seed);
  sets.train = images_at(all, split.train);
  sets.eval = images_at(all, split.eval);
  sets.notes.push_back(
      format("no folder val, eval or test: of each class {:g} % of the images are kept to "
             "evaluate on (task.eval_fraction)",
             100 * settings.task.eval_fraction));
}

void check_classes(const FolderSets& sets, const std::string& root) {
  const auto members = by_class(sets.train, sets.classes.size());
  for (size_t i = 0; i < members.size(); ++i) {
    if (!members[i].empty()) continue;
    throw InputError(format("the class {} has no image to train on", base::printable(sets.classes[i])),
                     base::printable(root + "/" + sets.classes[i], 4096),
                     "put .png, .jpg or .jpeg files there, or take the folder away");
  }
}

void check_some_to_evaluate(const TaskConfig& settings, const FolderSets& sets) {
  if (!sets.eval.files.empty() || !settings.evaluates) return;
  throw InputError("no image is left to evaluate on", "task.eval_fraction",
                   "raise task.eval_fraction, or make a folder val beside train");
}

// How often each value of a byte occurs in each channel.
using Counts = std::array<std::array<int64_t, 256>, 3>;

void count_bytes(const data::Pixels& image, Counts& counts) {
  const uint8_t* byte = image.row(0);
  for (int64_t i = 0; i < image.height * image.width; ++i, byte += 3) {
    for (size_t c = 0; c < 3; ++c) ++counts[c][byte[c]];
  }
}

// Of images evenly from the sorted list, as they look unaugmented: counts are exact, whoever sums them.
Counts counts_of(const data::FoundImages& train, const data::ImageLook& look) {
  constexpr int64_t kMost = 1000;
  const auto all = static_cast<int64_t>(train.files.size()), taken = std::min(all, kMost);
  Counts sum{};
  std::mutex mutex;
  data::parallel_each(taken, data::thread_count(), [&] {
    struct Own {
      data::ImageReader reader;
      data::Resampler resampler;
    };
    return [&, own = std::make_shared<Own>()](int64_t i) {
      const auto& image = own->reader.read(train.root + "/" + train.files[i * all / taken]);
      const auto view = data::middle_view(image.height, image.width, look.height, look.width);
      Counts counts{};
      count_bytes(own->resampler.scale(image, view.scaling), counts);
      const std::lock_guard lock(mutex);
      for (size_t c = 0; c < 3; ++c) {
        for (size_t value = 0; value < 256; ++value) sum[c][value] += counts[c][value];
      }
    };
  });
  return sum;
}

at::Tensor table_of_counts(const Counts& counts) {
  std::vector<double> means, deviations;
  for (const auto& channel : counts) {
    double count = 0, sum = 0, squares = 0;
    for (size_t value = 0; value < 256; ++value) {
      const double light = static_cast<double>(value) / 255, often = static_cast<double>(channel[value]);
      count += often, sum += often * light, squares += often * light * light;
    }
    const double mean = sum / count, variance = squares / count - mean * mean;
    means.push_back(mean);
    deviations.push_back(variance > 1e-12 ? std::sqrt(variance) : 1);
  }
  return normalize_table(means, deviations);
}

/// InputError for what cannot be trained on, a damaged image among it where task.damaged says so.
FolderSets folder_sets(const TaskConfig& settings) {
  const auto layout = layout_of(settings);
  FolderSets sets;
  sets.classes = data::class_folders(layout.train);
  if (sets.classes.size() < 2)
    throw InputError(
        format("there is one class alone, {}: there is nothing to learn", base::printable(sets.classes[0])),
        base::printable(layout.train, 4096), "give each class a folder of its own");
  sets.train = images_of(settings, layout.train, sets.classes, sets.notes);
  if (layout.eval.empty()) {
    part(settings, sets);
  } else {
    sets.eval = images_of(settings, layout.eval, sets.classes, sets.notes);
  }
  check_classes(sets, layout.train);
  check_some_to_evaluate(settings, sets);
  return sets;
}

/// The evaluation set alone where it has a folder of its own; else both.
FolderSets folder_eval_set(const TaskConfig& settings, const std::vector<std::string>& classes) {
  const auto layout = layout_of(settings);
  if (layout.eval.empty()) return folder_sets(settings);
  FolderSets sets{.classes = classes, .train = {}, .eval = {}, .notes = {}};
  sets.eval = images_of(settings, layout.eval, classes, sets.notes);
  return sets;
}

/// What each byte becomes by task.normalize, [3, 256]. `standard` looks at up to 1,000 of the images.
at::Tensor folder_table(const TaskConfig& settings, const data::FoundImages& train) {
  const auto& task = settings.task;
  if (task.normalize == "standard") return table_of_counts(counts_of(train, folder_look(settings)));
  if (task.normalize == "none") return normalize_table({0, 0, 0}, {1, 1, 1});
  if (task.mean.size() != 3)
    throw InputError(format("task.mean has {} numbers, and images have 3 colours", task.mean.size()),
                     "task.mean", "give three numbers in task.mean and in task.std: red, green, blue");
  return normalize_table(task.mean, task.std);
}

data::ImageLook folder_look(const TaskConfig& settings) {
  const auto& size = settings.task.size;
  if (size.size() != 2)
    throw InputError(format("task.size has {} numbers", size.size()), "task.size",
                     "give rows and columns: [224, 224]");
  return {.height = size[0], .width = size[1]};
}

constexpr const char* kModel = "resnet18";

void add_list(const data::FoundImages& images, SharedSet& set) {
  auto list = data::image_list(images.root, images.files, images.labels);
  for (auto& tensor : {list.names, list.ends, list.labels}) set.tensors.push_back(tensor);
}

data::ImageList list_at(const SharedSet& set, size_t first, const std::string& root) {
  return {.root = root,
          .names = set.tensors[first],
          .ends = set.tensors[first + 1],
          .labels = set.tensors[first + 2]};
}

// Which files, in which order, of which class: their place on a node is its own.
std::string identity_of_images(const SharedSet& set, const std::vector<std::string>& classes) {
  base::Sha256 sum;
  for (const auto& tensor : set.tensors) sum.add(tensor.const_data_ptr(), tensor.nbytes());
  for (const auto& name : classes) sum.add(name.data(), name.size() + 1);
  return sum.hex();
}

// tensors: names, ends and labels of the training and of the evaluation set, then the table
SharedSet load(const TaskConfig& settings) {
  const auto sets = folder_sets(settings);
  SharedSet set;
  add_list(sets.train, set);
  add_list(sets.eval, set);
  const auto identity = identity_of_images(set, sets.classes);
  set.tensors.push_back(folder_table(settings, sets.train));
  set.text = base::pack_texts({sets.train.root, sets.eval.root, identity, base::pack_texts(sets.classes),
                               base::pack_texts(sets.notes)});
  return set;
}

std::vector<std::string> printable(std::vector<std::string> names) {
  for (auto& name : names) name = base::printable(name);
  return names;
}

class FolderTask : public Task {
 public:
  TaskData data(const TaskConfig& settings, const NodeShare& node) override {
    const auto set = share_on_node(node, [&](Arena&) { return load(settings); });
    const auto texts = base::unpack_texts(set.text);
    look_ = folder_look(settings);
    look_.table = set.tensors[6];
    const auto train = list_at(set, 0, texts[0]), eval = list_at(set, 3, texts[1]);
    TaskData data;
    data.train = std::make_shared<data::ImageFolderSet>(train, augmented(settings));
    data.eval = std::make_shared<data::ImageFolderSet>(eval, look_);
    data.input_shape = {3, look_.height, look_.width};
    data.class_names = base::unpack_texts(texts[3]);
    data.identity = texts[2];
    const auto names = printable(data.class_names);
    const auto classes = static_cast<int64_t>(names.size());
    const auto counts = class_counts(train.labels, classes);
    data.notes = base::unpack_texts(texts[4]);
    data.notes.push_back(balance_text("train", counts, names));
    data.notes.push_back(balance_text("eval", class_counts(eval.labels, classes), names));
    if (settings.task.weighs_classes()) data.class_weights = balanced_weights(counts);
    return data;
  }

  std::shared_ptr<Net> model(const TaskConfig& settings, const TaskData& data) override {
    return make_model(settings.model, kModel, data.input_shape,
                      static_cast<int64_t>(data.class_names.size()));
  }

  std::shared_ptr<const Dataset> evaluation(const TaskConfig& settings, const TaskData& known,
                                            const NodeShare& node) override {
    const auto set = share_on_node(node, [&](Arena&) {
      const auto sets = folder_eval_set(settings, known.class_names);
      if (sets.classes != known.class_names)
        throw InputError("the folder's classes are not those of the checkpoint", settings.data.root,
                         format("it was trained on {}", base::join(printable(known.class_names), ", ")));
      SharedSet shared;
      add_list(sets.eval, shared);
      shared.text = sets.eval.root;
      return shared;
    });
    return std::make_shared<data::ImageFolderSet>(list_at(set, 0, set.text), known_look(known));
  }

  std::shared_ptr<const Dataset> inputs(const TaskConfig&, const TaskData& data,
                                        const std::string& path) const override {
    const auto file = base::find_path(path);
    const bool folder = std::filesystem::is_directory(file);
    const auto found = folder ? data::find_images(file) : data::FoundImages{"", {file}, {}};
    if (found.files.empty())
      throw InputError("there are no images in the folder", base::printable(file, 4096),
                       "give a PNG or JPEG file, or a folder with some");
    return std::make_shared<data::ImageFolderSet>(data::image_list(found.root, found.files, {}),
                                                  known_look(data));
  }

  std::optional<TaskMemory> memory() const override { return TaskMemory{{look_.table}, {}}; }

  void recall(const TaskMemory& memory) override {
    if (memory.tensors.size() != 1 || !memory.tensors[0].sizes().equals({3, 256}) ||
        memory.tensors[0].scalar_type() != at::kFloat)
      throw InputError("the checkpoint's normalisation is not one of images in colour", "lockstep.task",
                       "set task.name to the task that the checkpoint was trained with");
    look_.table = memory.tensors[0];
  }

  KnownLoss known_loss() const override { return KnownLoss::cross_entropy; }

 private:
  data::ImageLook augmented(const TaskConfig& settings) const {
    const auto asks = [&](const char* what) {
      const auto& all = settings.task.augment;
      return std::find(all.begin(), all.end(), what) != all.end();
    };
    auto look = look_;
    look.augment = {.crop = asks("crop"), .flip = asks("flip")};
    look.seed = static_cast<uint64_t>(settings.seed);
    return look;
  }

  // A checkpoint's model looks at images of the size that it was trained with.
  data::ImageLook known_look(const TaskData& known) const {
    return {.height = known.input_shape[1], .width = known.input_shape[2], .table = look_.table};
  }

  data::ImageLook look_;
};

}  // namespace

LOCKSTEP_TASK(
    folder, .help = "your images, PNG or JPEG, in a folder a class",
    .reads = {"size", "augment", "damaged", "eval_fraction", "normalize", "mean", "std"},
    .needs = {{"size", "set task.size to rows and columns: [224, 224]"}},
    .defaults = {{"model.name", "resnet18"}}, .make = [] { return std::make_unique<FolderTask>(); })

}  // namespace lockstep::tasks
