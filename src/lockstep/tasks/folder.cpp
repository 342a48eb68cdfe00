// Anyone's images in a folder a class, PNG or JPEG, decoded as batches are made.
#include <ATen/ATen.h>

#include <algorithm>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/files/sha256.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"
#include "lockstep/tasks/balance.h"
#include "lockstep/tasks/folder_sets.h"
#include "lockstep/tasks/task.h"

namespace lockstep::tasks {
namespace {

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
