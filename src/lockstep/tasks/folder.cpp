// A folder of images per class, PNG or JPEG, decoded as batches are made.
#include <ATen/ATen.h>
#include <ATen/core/Tensor.h>
#include <caffe2/serialize/inline_container.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/sha256.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/zip.h"
#include "lockstep/data/catalog.h"
#include "lockstep/data/image_folder.h"
#include "lockstep/data/image_set.h"
#include "lockstep/data/pixels/image_file.h"
#include "lockstep/options/settings.h"
#include "lockstep/tasks/balance.h"
#include "lockstep/tasks/packed.h"
#include "lockstep/tasks/task.h"

namespace lockstep::tasks {
namespace {

/// What a folder of images has for training and evaluation: found, checked and split on a node's first rank.
struct FolderSets {
  std::vector<std::string> classes;
  data::FoundImages train, eval;
  std::vector<std::string> notes;
};

/// data.root: a folder, or an archive of one.
struct Source {
  std::optional<data::ImageArchive> archive = {};
  data::ImageFolders layout = {};

  const data::ImageArchive* in() const { return archive ? &*archive : nullptr; }
};

Source open_source(const TaskConfig& settings, const std::string& stage, Arena& arena) {
  if (settings.data.root.empty())
    throw InputError("the folder task needs a folder", "data.root",
                     "set data.root to a folder with train/CLASS/*.jpg or CLASS/*.jpg");
  auto root = base::find_path(settings.data.root);
  Source source;
  std::error_code none;
  if (std::filesystem::is_regular_file(root, none)) {
    root = data::stage_file(root, stage);
    source.archive = data::open_image_archive(root, arena);
  } else if (!stage.empty()) {
    throw InputError("data.stage copies single files, not a folder of images", "data.stage",
                     "pack it with `lockstep data pack CONFIG.yaml --out IMAGES.zip`, and set data.root to "
                     "IMAGES.zip");
  }
  source.layout = data::image_layout(root, source.in());
  return source;
}

std::string named(const std::vector<data::Damage>& damaged) {
  constexpr size_t kMost = 5;
  std::vector<std::string> names;
  for (size_t i = 0; i < std::min(damaged.size(), kMost); ++i)
    names.push_back(format("{} ({})", damaged[i].where, damaged[i].what));
  if (damaged.size() > kMost) names.push_back(format("and {} more", damaged.size() - kMost));
  return base::join(names, ", ");
}

void check_images(const TaskConfig& settings, data::FoundImages& images) {
  const bool skip = settings.task.damaged == "skip";
  const auto start = std::chrono::steady_clock::now();
  const auto all = base::counted(static_cast<long long>(images.files.size()), "image");
  const auto damaged = data::remove_damaged(images, /*all_pixels=*/skip);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  log::info(format("{} {} in {} ({:.1f} s)", skip ? "decoded" : "checked", all,
                   base::printable(images.root, 4096), took.count()));
  if (damaged.empty()) return;
  const auto count = format("{} of {} cannot be read", damaged.size(), all);
  if (!skip) throw InputError(count, named(damaged), "fix or remove these files, or set task.damaged: skip");
  log::warning(format("{}, and are left out: {}", count, named(damaged)));
}

data::FoundImages images_of(const TaskConfig& settings, const std::string& root,
                            const std::vector<std::string>& classes, std::vector<std::string>& notes,
                            const data::ImageArchive* archive) {
  auto images = data::find_images(root, classes, archive);
  if (images.files.empty())
    throw InputError("there are no images in the class folders", base::printable(root, 4096),
                     "put .png, .jpg or .jpeg files there");
  check_images(settings, images);
  if (images.left_out > 0)
    notes.push_back(format("{}: skipped {} files that are not .png, .jpg or .jpeg",
                           base::printable(root, 4096), images.left_out));
  return images;
}

data::FoundImages images_at(const data::FoundImages& from, const std::vector<int64_t>& places) {
  data::FoundImages some{.root = from.root, .files = {}, .labels = {}, .bytes = from.bytes};
  for (const int64_t place : places) {
    some.files.push_back(from.files[place]);
    some.labels.push_back(from.labels[place]);
    if (!from.places.empty()) some.places.push_back(from.places[place]);
  }
  return some;
}

void split(const TaskConfig& settings, FolderSets& sets) {
  const auto rows = stratified(at::tensor(sets.train.labels, at::kLong), sets.classes.size(),
                               settings.task.eval_fraction, settings.seed);
  sets.eval = images_at(sets.train, rows.eval);
  sets.train = images_at(sets.train, rows.train);
  sets.notes.push_back(
      format("no folder val, eval or test: {:g} % of each class's images are used for evaluation "
             "(task.eval_fraction)",
             100 * settings.task.eval_fraction));
}

void check_classes(const FolderSets& sets, const std::string& root) {
  const std::set<int64_t> some(sets.train.labels.begin(), sets.train.labels.end());
  for (size_t i = 0; i < sets.classes.size(); ++i) {
    if (some.contains(static_cast<int64_t>(i))) continue;
    throw InputError(format("the class {} has no image to train on", base::printable(sets.classes[i])),
                     base::printable(root + "/" + sets.classes[i], 4096),
                     "put .png, .jpg or .jpeg files there, or remove the folder");
  }
}

/// Rows and columns, by task.size.
data::ImageTransform folder_look(const TaskConfig& settings) {
  const auto& size = settings.task.size;
  if (size.size() != 2)
    throw InputError(format("task.size has {} numbers", size.size()), "task.size",
                     "give rows and columns: [224, 224]");
  return {.height = size[0], .width = size[1]};
}

// The number of each byte value in each channel.
using Counts = std::array<std::array<int64_t, 256>, 3>;

void count_bytes(const data::Pixels& image, Counts& counts) {
  const uint8_t* byte = image.row(0);
  for (int64_t i = 0; i < image.height * image.width; ++i, byte += 3)
    for (size_t c = 0; c < 3; ++c) ++counts[c][byte[c]];
}

// From images spread evenly over the sorted list, not augmented. Counts are exact in any order of summation.
Counts counts_of(const data::ImageList& train, const data::ImageTransform& look) {
  constexpr int64_t kMost = 1000;
  const auto all = train.size(), taken = std::min(all, kMost);
  Counts sum{};
  std::mutex mutex;
  data::parallel_each(taken, data::thread_count(), [&] {
    struct Own {
      data::ImageReader reader;
      data::Resampler resampler;
    };
    return [&, own = std::make_shared<Own>()](int64_t i) {
      const auto& image = train.read(i * all / taken, own->reader);
      const auto view = data::middle_view(image.height, image.width, look.height, look.width);
      Counts counts{};
      count_bytes(own->resampler.scale(image, view.scaling), counts);
      const std::lock_guard lock(mutex);
      for (size_t c = 0; c < 3; ++c)
        for (size_t value = 0; value < 256; ++value) sum[c][value] += counts[c][value];
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

FolderSets folder_sets(const TaskConfig& settings, const Source& source) {
  const auto& layout = source.layout;
  FolderSets sets;
  sets.classes = data::class_folders(layout.train, source.in());
  if (sets.classes.size() < 2)
    throw InputError(
        format("the only class is {}: there is nothing to learn", base::printable(sets.classes[0])),
        base::printable(layout.train, 4096), "give each class a folder of its own");
  sets.train = images_of(settings, layout.train, sets.classes, sets.notes, source.in());
  if (layout.eval.empty()) {
    split(settings, sets);
  } else {
    sets.eval = images_of(settings, layout.eval, sets.classes, sets.notes, source.in());
  }
  check_classes(sets, layout.train);
  if (sets.eval.files.empty() && settings.evaluates)
    throw InputError("no image is left for evaluation", "task.eval_fraction",
                     "raise task.eval_fraction, or create a folder val beside train");
  return sets;
}

/// What each byte becomes by task.normalize, [3, 256]. `standard` looks at up to 1,000 of the images.
at::Tensor folder_table(const TaskConfig& settings, const data::ImageList& train) {
  const auto& task = settings.task;
  if (task.normalize == "standard") return table_of_counts(counts_of(train, folder_look(settings)));
  if (task.normalize == "none") return normalize_table({0, 0, 0}, {1, 1, 1});
  if (task.mean.size() != 3)
    throw InputError(format("task.mean has {} numbers, and images have 3 colors", task.mean.size()),
                     "task.mean", "give three numbers in task.mean and in task.std: red, green, blue");
  return normalize_table(task.mean, task.std);
}

void add_list(const data::FoundImages& images, SharedSet& set) {
  const auto list = data::image_list(images);
  set.tensors.insert(set.tensors.end(), {list.names, list.ends, list.labels, list.places});
}

// The last tensor is the bytes of an archive if there are places in it.
data::ImageList list_at(const SharedSet& set, size_t first, const std::string& root) {
  return {.root = root,
          .names = set.tensors[first],
          .ends = set.tensors[first + 1],
          .labels = set.tensors[first + 2],
          .places = set.tensors[first + 3],
          .bytes = set.tensors.back()};
}

// Of the files, their order and their classes. Their folder may differ from node to node.
std::string identity_of(const SharedSet& set, const std::vector<std::string>& classes) {
  base::Sha256 sum;
  for (const size_t i : {0, 1, 2, 4, 5, 6})  // all but the places
    sum.add(set.tensors[i].const_data_ptr(), set.tensors[i].nbytes());
  for (const auto& name : classes) sum.add(name.data(), name.size() + 1);
  return sum.hex();
}

// tensors: names, ends, labels and places of the training and of the evaluation set, then the table, and the
// archive's bytes
SharedSet load(const TaskConfig& settings, Arena& arena) {
  const auto sets = folder_sets(settings, open_source(settings, settings.data.stage, arena));
  SharedSet set;
  add_list(sets.train, set);
  add_list(sets.eval, set);
  const auto identity = identity_of(set, sets.classes);
  set.tensors.push_back(folder_table(settings, data::image_list(sets.train)));
  if (sets.train.bytes.defined()) set.tensors.push_back(sets.train.bytes);
  nlohmann::json::to_msgpack({{"train", sets.train.root},
                              {"eval", sets.eval.root},
                              {"identity", identity},
                              {"classes", sets.classes},
                              {"notes", sets.notes}},
                             set.text);
  return set;
}

class FolderTask : public Task, public PackableTask {
 public:
  TaskData data(const TaskConfig& settings, const NodeShare& node) override {
    const auto set = share_on_node(node, [&](Arena& arena) { return load(settings, arena); });
    const auto facts = nlohmann::json::from_msgpack(set.text);
    look_ = folder_look(settings);
    look_.table = set.tensors[8];
    const auto train = list_at(set, 0, facts.at("train")), eval = list_at(set, 4, facts.at("eval"));
    TaskData data;
    data.train = std::make_shared<data::ImageFolderSet>(train, augmented(settings));
    data.eval = std::make_shared<data::ImageFolderSet>(eval, look_);
    data.input_shape = {3, look_.height, look_.width};
    facts.at("classes").get_to(data.class_names);
    data.identity = facts.at("identity");
    facts.at("notes").get_to(data.notes);
    add_balance(data, train.labels, eval.labels, settings.task);
    return data;
  }

  std::shared_ptr<const Dataset> evaluation(const TaskConfig& settings, const TaskData& known,
                                            const NodeShare& node) override {
    const auto set = share_on_node(node, [&](Arena& arena) {
      const auto source = open_source(settings, settings.data.stage, arena);
      const auto& own = source.layout.eval;
      FolderSets sets{.classes = known.class_names, .train = {}, .eval = {}, .notes = {}};
      if (own.empty()) sets = folder_sets(settings, source);
      if (!own.empty()) sets.eval = images_of(settings, own, sets.classes, sets.notes, source.in());
      if (sets.classes != known.class_names)
        throw InputError("the folder's classes are not those of the checkpoint", settings.data.root,
                         format("give a folder with the classes {}",
                                base::printable(base::join(known.class_names, ", "), 300)));
      SharedSet shared;
      add_list(sets.eval, shared);
      if (sets.eval.bytes.defined()) shared.tensors.push_back(sets.eval.bytes);
      shared.text = sets.eval.root;
      return shared;
    });
    return std::make_shared<data::ImageFolderSet>(list_at(set, 0, set.text), known_look(known));
  }

  std::string packed_ending() const override { return ".zip"; }

  int64_t pack(const TaskConfig& settings, const std::string& path) override {
    const auto root = base::find_path(settings.data.root);
    Arena arena;
    const auto source = open_source(settings, /*stage=*/"", arena);
    if (source.archive) throw InputError("the images are already in one file", root, "name their folder");
    const auto sets = folder_sets(settings, source);
    std::vector<std::string> files;
    for (const auto* images : {&sets.train, &sets.eval})
      for (const auto& file : images->files) files.push_back(images->root + "/" + file);
    const auto write = [&](const base::ByteSink& sink) {
      checkpoint::write_archive(sink, [&](caffe2::serialize::PyTorchStreamWriter& archive, auto& failure) {
        std::vector<uint8_t> bytes;
        for (const auto& name : files) {
          if (failure) break;
          const base::RegularFile file(name, "the image");
          bytes.resize(file.size());
          if (file.read_at(0, bytes.data(), bytes.size()) != bytes.size())
            throw InputError("the image changed while it was packed", base::printable(name, 4096),
                             "try again");
          archive.writeRecord(name.substr(root.size() + 1), bytes.data(), bytes.size());
        }
      });
    };
    base::write_whole(path, write, /*ready=*/{}, readable_as(files));
    return std::ssize(files);
  }

  std::shared_ptr<const Dataset> inputs(const TaskConfig&, const TaskData& data,
                                        const std::string& path) const override {
    const auto file = base::find_path(path);
    const bool folder = std::filesystem::is_directory(file);
    const auto found = folder ? data::find_images(file) : data::FoundImages{"", {file}, {}};
    if (found.files.empty())
      throw InputError("there are no images in the folder", base::printable(file, 4096),
                       "give a PNG or JPEG file, or a folder with some");
    return std::make_shared<data::ImageFolderSet>(data::image_list(found), known_look(data));
  }

  std::optional<TaskMemory> memory() const override { return TaskMemory{{look_.table}, {}}; }

  void recall(const TaskMemory& memory) override {
    if (memory.tensors.size() != 1 || !memory.tensors[0].sizes().equals({3, 256}) ||
        memory.tensors[0].scalar_type() != at::kFloat)
      refuse_memory("color images");
    look_.table = memory.tensors[0];
  }

  KnownLoss known_loss() const override { return KnownLoss::cross_entropy; }

 private:
  data::ImageTransform augmented(const TaskConfig& settings) const {
    const auto asks = [&](const char* what) { return std::ranges::count(settings.task.augment, what) > 0; };
    auto look = look_;
    look.augment = {.crop = asks("crop"), .flip = asks("flip")};
    look.seed = static_cast<uint64_t>(settings.seed);
    return look;
  }

  // A checkpoint's model looks at images of the size that it was trained with.
  data::ImageTransform known_look(const TaskData& known) const {
    return {.height = known.input_shape[1], .width = known.input_shape[2], .table = look_.table};
  }

  data::ImageTransform look_;
};

}  // namespace

LOCKSTEP_TASK(
    folder, .help = "your images, PNG or JPEG, with a folder for each class",
    .reads = {"size", "augment", "damaged", "eval_fraction", "normalize", "mean", "std"},
    .needs = {{"size", "set task.size to rows and columns: [224, 224]"}},
    .defaults = {{"model.name", "resnet18"}}, .make = [] { return std::make_unique<FolderTask>(); })

}  // namespace lockstep::tasks
