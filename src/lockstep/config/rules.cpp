#include "lockstep/config/rules.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/config/keys.h"
#include "lockstep/config/value.h"

namespace lockstep::config {
namespace {

bool is_set(const Loaded& loaded, const std::string& path) {
  return loaded.origins.at(path).kind != Origin::by_default;
}

// a rule is broken by the key that stands in the file, if one of the two does
[[noreturn]] void refuse(const Loaded& loaded, const std::string& what, const std::vector<std::string>& paths,
                         const std::string& hint) {
  const auto set =
      std::find_if(paths.begin(), paths.end(), [&](const auto& path) { return is_set(loaded, path); });
  throw InputError(what, set == paths.end() ? "defaults" : loaded.origins.at(*set).text, hint);
}

void check_name(const Loaded& loaded) {
  const std::string& name = loaded.settings.run.name;
  const auto odd = [](unsigned char c) { return c < 0x20 || c == 0x7F || c == '/'; };
  const bool folder = !name.empty() && name.size() <= 200 && name != "." && name != "..";
  if (folder && std::none_of(name.begin(), name.end(), odd)) return;
  refuse(loaded, format("run.name must be the name of a folder, not '{}'", base::printable(name)),
         {"run.name"}, "letters, digits, '-' and '_' are safe; run.dir says where the folder is");
}

void check_accumulate(const Loaded& loaded) {
  if (loaded.settings.train.accumulate <= 1 || !loaded.settings.ddp.static_graph) return;
  refuse(loaded, "train.accumulate above 1 and ddp.static_graph exclude each other",
         {"train.accumulate", "ddp.static_graph"},
         "set ddp.static_graph to false: the first step of a static graph has to be synchronised");
}

void check_nesterov(const Loaded& loaded) {
  const OptimSettings& optim = loaded.settings.optim;
  if (optim.name != "sgd" || !optim.nesterov || optim.momentum > 0) return;
  refuse(loaded, "optim.nesterov needs optim.momentum above 0", {"optim.nesterov", "optim.momentum"},
         "set optim.momentum, 0.9 say");
}

void check_one_cycle(const Loaded& loaded) {
  const ScheduleSettings& schedule = loaded.settings.schedule;
  if (schedule.name != "one_cycle") return;
  if (schedule.max_lr <= 0) {
    refuse(loaded, "schedule one_cycle needs schedule.max_lr above 0", {"schedule.max_lr", "schedule.name"},
           "set schedule.max_lr, ten times optim.lr say");
  }
  if (schedule.base_momentum > schedule.max_momentum) {
    refuse(loaded, "schedule.base_momentum is above schedule.max_momentum",
           {"schedule.base_momentum", "schedule.max_momentum"}, "swap them");
  }
}

void check_early_stop(const Loaded& loaded) {
  const TrainSettings& train = loaded.settings.train;
  if (train.early_stop == 0 || train.eval_every > 0) return;
  refuse(loaded, "train.early_stop never acts where train.eval_every is 0: it compares evaluations",
         {"train.early_stop", "train.eval_every"}, "set train.eval_every to 1, or train.early_stop to 0");
}

void check_torchscript(const Loaded& loaded) {
  if (loaded.settings.model.name != "torchscript" || !loaded.settings.model.path.empty()) return;
  refuse(loaded, "model torchscript needs model.path", {"model.path", "model.name"},
         "set model.path to the file that torch.jit.save wrote");
}

void check_normalize(const Loaded& loaded) {
  const TaskSettings& task = loaded.settings.task;
  if (task.normalize == "mean_std" && (task.mean.empty() || task.mean.size() != task.std.size())) {
    refuse(loaded, "task.normalize mean_std needs task.mean and task.std, equally long",
           {"task.mean", "task.std", "task.normalize"}, "give a number for each channel or feature");
  }
}

void check_regression(const Loaded& loaded) {
  const TaskSettings& task = loaded.settings.task;
  if (task.name != "csv" || task.kind != "regression") return;
  if (task.classes == 0 && task.class_weights == "none" && loaded.settings.train.label_smoothing == 0) return;
  refuse(loaded, "task.kind regression has no classes to count, weigh or smooth",
         {"task.classes", "task.class_weights", "train.label_smoothing", "task.kind"},
         "leave out task.classes, task.class_weights and train.label_smoothing");
}

void check_delimiter(const Loaded& loaded) {
  if (loaded.settings.task.delimiter.size() == 1) return;
  refuse(loaded,
         format("task.delimiter must be one character, not '{}'",
                base::printable(loaded.settings.task.delimiter)),
         {"task.delimiter"}, R"(",", ";" or "\t" are usual)");
}

std::string selected(const Settings& settings, const std::string& selector) {
  return *std::get<std::string*>(find_key(selector)->field(const_cast<Settings&>(settings)));
}

// a task from a shared library reads what it likes
bool is_own_task(const Use& use, const std::string& value) {
  return use.selector == "task.name" && (value.find('/') != std::string::npos || value.ends_with(".so"));
}

bool is_used(const Key& key, const Settings& settings) {
  const Use& use = key.rules.use;
  if (use.selector.empty()) return true;
  const std::string value = selected(settings, use.selector);
  return is_own_task(use, value) ||
         std::find(use.values.begin(), use.values.end(), value) != use.values.end();
}

}  // namespace

void resolve(Loaded& loaded) {
  // Python's defaults: torch.optim.AdamW has 0.01, SGD and Adam have 0
  if (is_set(loaded, "optim.weight_decay")) return;
  loaded.settings.optim.weight_decay = loaded.settings.optim.name == "adamw" ? 0.01 : 0;
}

void check_together(const Loaded& loaded) {
  for (const auto& check : {check_name, check_accumulate, check_nesterov, check_one_cycle, check_early_stop,
                            check_torchscript, check_normalize, check_regression, check_delimiter}) {
    check(loaded);
  }
}

// One line for all keys of one cause. Where most keys are set, as in a run's resolved config, a default is no
// choice.
void warn_unused(Loaded& loaded) {
  const Settings defaults;
  const auto written =
      std::count_if(keys().begin(), keys().end(), [&](const Key& key) { return is_set(loaded, key.path); });
  const bool resolved = 2 * static_cast<size_t>(written) > keys().size();
  std::map<std::string, std::vector<const Key*>> unused;  // by what selects them
  for (const Key& key : keys()) {
    const bool chosen = !resolved || value_text(key, loaded.settings) != value_text(key, defaults);
    if (chosen && is_set(loaded, key.path) && !is_used(key, loaded.settings))
      unused[key.rules.use.selector].push_back(&key);
  }
  for (const auto& [selector, all] : unused) {
    std::vector<std::string> names;
    for (const Key* key : all) names.push_back(key->path);
    const bool one = names.size() == 1;
    const std::string place = one ? format(" ({})", loaded.origins.at(names[0]).text) : "";
    loaded.warnings.push_back(format("{} {} set and not used: {} is {}{}", base::join(names, ", "),
                                     one ? "is" : "are", selector, selected(loaded.settings, selector),
                                     place));
  }
}

}  // namespace lockstep::config
