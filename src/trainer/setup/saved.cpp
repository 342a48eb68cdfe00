#include "trainer/setup/saved.h"

#include <torch/types.h>

#include <cmath>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/paths.h"
#include "lockstep/checkpoint/collective/resume_state.h"
#include "lockstep/checkpoint/collective/share_tree.h"
#include "lockstep/checkpoint/store.h"
#include "trainer/config/keys.h"
#include "trainer/config/load.h"
#include "trainer/run_folder/status.h"

namespace lockstep::train {
namespace {

template <class Values>
Tree list_of(const Values& values) {
  const auto list = make_list();
  for (const auto& value : values) append(list, value);
  return list;
}

// "lockstep.task.KEY" of a checkpoint, each entry by as_int(), as_string() or as_tensor().
template <class Convert>
auto values_of(const Tree& memory, const std::string& key, const Convert& convert) {
  std::vector<decltype(convert(memory, key))> values;
  for (const auto& value : elements(get(memory, key)))
    values.push_back(convert(value, "lockstep.task." + key));
  return values;
}

LabelScale scale_in(const Tree& tree) {
  const LabelScale scale{as_double(get(tree, "mean"), "lockstep.task.label_scale.mean"),
                         as_double(get(tree, "std"), "lockstep.task.label_scale.std")};
  if (std::isfinite(scale.mean) && std::isfinite(scale.std) && scale.std > 0) return scale;
  throw InputError("the label's mean and deviation in the checkpoint are not valid",
                   "lockstep.task.label_scale", "use another checkpoint");
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
  if (config::is_read("task.kind", setup.settings) && setup.data.regression != task.is_regression())
    throw InputError("the checkpoint was trained with another task.kind", "task.kind: " + task.kind,
                     setup.data.regression ? "set task.kind: regression" : "set task.kind: classification");
  if (const auto scale = find(memory, "label_scale"); scale && !scale->isNone())
    setup.data.label_scale = scale_in(*scale);
  if (task.weighs_classes() && weights && !weights->isNone())
    setup.data.class_weights = as_tensor(*weights, "lockstep.task.class_weights");
}

}  // namespace

// Of a file that knows no config, Python's say, a label is the number itself.
void take_over_from(Settings& settings, const Tree& checkpoint) {
  const auto extras = find(checkpoint, checkpoint::kTrainerKey);
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
  const auto extras = find(checkpoint, checkpoint::kTrainerKey);
  const auto memory = extras ? find(*extras, "task") : std::nullopt;
  if (!memory || memory->isNone()) return false;
  if (as_string(get(*memory, "name"), "lockstep.task.name") != setup.settings.task.name) return false;
  recall_classes(setup, *memory);
  setup.data.input_shape = values_of(*memory, "input_shape", as_int);
  setup.data.class_names = values_of(*memory, "class_names", as_string);
  const auto contiguous = [](const Tree& tree, const std::string& key) {
    return as_tensor(tree, key).contiguous();
  };
  setup.task->recall({values_of(*memory, "tensors", contiguous), values_of(*memory, "texts", as_string)});
  return true;
}

namespace {

namespace fs = std::filesystem;

// What a person wants of a run that kept its best; one that is damaged is skipped, as the newest would
// be.
std::optional<SavedCheckpoint> best_in(const CheckpointStore& store) {
  std::error_code none;
  if (!fs::exists(store.best_path(), none)) return std::nullopt;
  try {
    return SavedCheckpoint{store.best_path(), checkpoint::read_checkpoint(store.best_path())};
  } catch (const InputError& error) {
    log::warning(format("{} is skipped: {}", store.best_path(), error.what()));
    return std::nullopt;
  }
}

std::optional<SavedCheckpoint> newest_in(const CheckpointStore& store) {
  auto found = store.latest();
  if (!found) return std::nullopt;
  checkpoint::check_format(found->tree, found->path);
  return SavedCheckpoint{found->path, found->tree};
}

// Starting from the first step in the folder of a run that had come further would end what is left.
void check_never_saved(const fs::path& run_folder) {
  std::string last;
  try {
    last = run_folder::read_status(run_folder).checkpoint;
  } catch (const InputError&) {
    return;  // killed before it could say anything
  }
  if (last.empty()) return;
  throw InputError("the run's checkpoints are missing", (run_folder / last).string(),
                   "put them back, or start a new run (without --resume)");
}

SavedCheckpoint from_first(const Team& team, const std::function<SavedCheckpoint()>& read) {
  SavedCheckpoint saved;
  saved.tree = checkpoint::share_tree(team, [&] {
    saved = read();
    return saved.tree;
  });
  saved.path = team.from_first([&] { return saved.path; });
  return saved;
}

}  // namespace

std::string find_saved(const std::string& wanted) {
  auto path = base::find_path(wanted);
  std::error_code failed;
  if (fs::exists(path, failed)) return path;
  throw InputError(
      failed ? "cannot check the path: " + failed.message() : "no such file or folder", wanted,
      base::did_you_mean_file(wanted) + "name a run's folder (runs/NAME), or a .pt or safetensors file");
}

SavedCheckpoint read_saved(const Team& team, const std::string& wanted) {
  return from_first(team, [&] {
    const auto path = find_saved(wanted);
    if (!fs::is_directory(path)) return SavedCheckpoint{path, checkpoint::read_checkpoint(path)};
    const auto store = checkpoints_of(path);
    if (auto found = best_in(store)) return *found;
    if (auto found = newest_in(store)) return *found;
    throw InputError("this folder holds no complete checkpoint", path,
                     "name another run's folder, or a .pt or safetensors file");
  });
}

std::optional<SavedCheckpoint> newest_saved(const Team& team, const std::string& run_folder) {
  auto saved = from_first(team, [&] {
    if (auto found = newest_in(CheckpointStore((fs::path(run_folder) / "checkpoints").string())))
      return *found;
    check_never_saved(run_folder);
    return SavedCheckpoint{"", make_dict()};
  });
  return saved.path.empty() ? std::nullopt : std::optional(std::move(saved));
}

}  // namespace lockstep::train
