#include "trainer/setup/task_memory.h"
#include "lockstep/train/resumable.h"

#include <torch/types.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "trainer/config/past_config.h"

namespace lockstep::train {
namespace {

template <class Values>
Tree list_of(const Values& values) {
  const auto list = make_list();
  for (const auto& value : values) append(list, value);
  return list;
}

std::vector<std::string> texts_of(const Tree& memory, const std::string& key) {
  std::vector<std::string> texts;
  for (const auto& text : elements(get(memory, key)))
    texts.push_back(as_string(text, "lockstep.task." + key));
  return texts;
}

std::vector<int64_t> numbers_of(const Tree& memory, const std::string& key) {
  std::vector<int64_t> numbers;
  for (const auto& number : elements(get(memory, key)))
    numbers.push_back(as_int(number, "lockstep.task." + key));
  return numbers;
}

std::vector<at::Tensor> tensors_of(const Tree& memory, const std::string& key) {
  std::vector<at::Tensor> tensors;
  for (const auto& tensor : elements(get(memory, key)))
    tensors.push_back(as_tensor(tensor, "lockstep.task." + key).contiguous());
  return tensors;
}

LabelScale scale_in(const Tree& tree) {
  const LabelScale scale{as_double(get(tree, "mean"), "lockstep.task.label_scale.mean"),
                         as_double(get(tree, "std"), "lockstep.task.label_scale.std")};
  if (std::isfinite(scale.mean) && std::isfinite(scale.std) && scale.std > 0) return scale;
  throw InputError("the label's mean and deviation in the checkpoint are none", "lockstep.task.label_scale",
                   "take another checkpoint");
}

Tree tree_of(const std::optional<LabelScale>& scale) {
  return scale ? make_dict({{"mean", scale->mean}, {"std", scale->std}}) : Tree();
}

// Checkpoints from before these were kept have neither.
void recall_classes(Setup& setup, const Tree& memory) {
  const auto regression = find(memory, "regression");
  const auto weights = find(memory, "class_weights");
  const auto& task = setup.settings.task;
  setup.data.regression = regression && as_bool(*regression, "lockstep.task.regression");
  if ((task.name == "csv" || task.name == "text") && setup.data.regression != task.is_regression()) {
    throw InputError("the checkpoint was trained with another task.kind", "task.kind: " + task.kind,
                     setup.data.regression ? "set task.kind: regression" : "set task.kind: classification");
  }
  if (const auto scale = find(memory, "label_scale"); scale && !scale->isNone())
    setup.data.label_scale = scale_in(*scale);
  if (task.weighs_classes() && weights && !weights->isNone())
    setup.data.class_weights = as_tensor(*weights, "lockstep.task.class_weights");
}

}  // namespace

// Of a file that knows no config, Python's say, a label is the number itself.
void take_over_from(Settings& settings, const Tree& checkpoint) {
  const auto extras = find(checkpoint, kTrainerKey);
  if (const auto config = extras ? find(*extras, "config") : std::nullopt) {
    const auto text = as_string(*config, "lockstep.config");
    config::take_over(config::read_past_config(text, "lockstep.config"), settings);
  }
  if (settings.task.normalize_label == "auto") settings.task.normalize_label = "none";
}

Tree remembered(const Setup& setup) {
  const auto memory = setup.task->memory();
  if (!memory) return {};
  const auto& weights = setup.data.class_weights;
  return make_dict({{"name", setup.settings.task.name},
                    {"input_shape", list_of(setup.data.input_shape)},
                    {"class_names", list_of(setup.data.class_names)},
                    {"identity", setup.data.identity},
                    {"regression", setup.data.regression},
                    {"label_scale", tree_of(setup.data.label_scale)},
                    {"class_weights", weights.defined() ? Tree(weights) : Tree()},
                    {"tensors", list_of(memory->tensors)},
                    {"texts", list_of(memory->texts)}});
}

bool recall(Setup& setup, const Tree& checkpoint) {
  take_over_from(setup.settings, checkpoint);
  const auto extras = find(checkpoint, kTrainerKey);
  const auto memory = extras ? find(*extras, "task") : std::nullopt;
  if (!memory || memory->isNone()) return false;
  if (as_string(get(*memory, "name"), "lockstep.task.name") != setup.settings.task.name) return false;
  recall_classes(setup, *memory);
  setup.data.input_shape = numbers_of(*memory, "input_shape");
  setup.data.class_names = texts_of(*memory, "class_names");
  setup.task->recall({tensors_of(*memory, "tensors"), texts_of(*memory, "texts")});
  return true;
}

}  // namespace lockstep::train
