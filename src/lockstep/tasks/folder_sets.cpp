#include "lockstep/tasks/folder_sets.h"

#include <ATen/ATen.h>

#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <mutex>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"
#include "lockstep/data/check_images.h"
#include "lockstep/data/image_set.h"
#include "lockstep/data/parallel_each.h"
#include "lockstep/data/pixels/image_file.h"
#include "lockstep/tasks/stratified.h"

namespace lockstep::tasks {
namespace {

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

}  // namespace

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

FolderSets folder_eval_set(const TaskConfig& settings, const std::vector<std::string>& classes) {
  const auto layout = layout_of(settings);
  if (layout.eval.empty()) return folder_sets(settings);
  FolderSets sets{.classes = classes, .train = {}, .eval = {}, .notes = {}};
  sets.eval = images_of(settings, layout.eval, classes, sets.notes);
  return sets;
}

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

}  // namespace lockstep::tasks
