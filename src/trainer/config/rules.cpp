// Rules between keys: which exclude each other, and which are not used.
#include "trainer/config/load.h"

#include <algorithm>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/device.h"
#include "trainer/config/keys.h"

namespace lockstep::config {
namespace {

using S = Settings;

#define WHEN(condition) [](const S& s) -> bool { return condition; }

const Choice kGraph = {"train.graph", "", WHEN(s.train.graph)};
// other modes leave `parallel` out
const Choice kSharedLayers = {"parallel.tensor", "above 1",
                              WHEN(s.train.mode == TrainMode::ddp && s.parallel.tensor > 1)};
const Choice kStages = {"parallel.pipeline", "above 1",
                        WHEN(s.train.mode == TrainMode::ddp && s.parallel.pipeline > 1)};
const Choice kStaticGraph = {"ddp.static_graph", "", WHEN(s.ddp.static_graph)};
const Choice kNoDecay = {"optim.no_decay", "", WHEN(!s.optim.no_decay.empty())};
const Choice kAccumulate = {"train.accumulate", "above 1", WHEN(s.train.accumulate > 1)};
const Choice kFp16 = {"train.precision", "fp16", WHEN(s.train.precision == Precision::fp16)};
const Choice kOnDevices = {"train.mode", "data_parallel", WHEN(s.train.mode == TrainMode::data_parallel)};
const Choice kNotDdp = {"train.mode", "other than ddp", WHEN(s.train.mode != TrainMode::ddp)};
const Choice kSplitModel = {"model.name", "that reads model.devices", WHEN(is_read("model.devices", s))};
const Choice kOwnAllReduce = {"launch.allreduce", "other than auto", WHEN(s.launch.has_algorithm())};
const Choice kNoAllReduce = {"launch.allreduce", "auto", WHEN(!s.launch.has_algorithm())};
const Choice kRegression = {"task.kind", "regression",
                            WHEN(s.task.is_regression() && is_read("task.kind", s))};
const Choice kAsWorld = {"train.as_world", "above 0", WHEN(s.train.as_world > 0)};
const Choice kClasses = {"task.classes", "above 0", WHEN(s.task.classes > 0)};
const Choice kClassWeights = {"task.class_weights", "other than none", WHEN(s.task.weighs_classes())};
const Choice kSmoothing = {"train.label_smoothing", "above 0", WHEN(s.train.label_smoothing > 0)};
const Choice kLatency = {"launch.latency_us", "above 0", WHEN(s.launch.latency_us > 0)};
const Choice kBandwidth = {"launch.bandwidth_gbit", "above 0", WHEN(s.launch.bandwidth_gbit > 0)};
const Choice kTrace = {"train.trace", "above 0", WHEN(s.train.trace > 0)};
const Choice kNotResident = {"data.resident", "false", WHEN(!s.data.resident)};
const Choice kCommHook = {"ddp.comm_hook", "other than none", WHEN(s.ddp.has_hook())};
const Choice kSyncBatchNorm = {"ddp.sync_batchnorm", "", WHEN(s.ddp.sync_batchnorm)};
const Choice kFindUnused = {"ddp.find_unused_parameters", "", WHEN(s.ddp.find_unused_parameters)};
const Choice kCheckpointing = {"model.checkpointing", "", WHEN(s.model.checkpointing)};
const Choice kNvtx = {"train.nvtx", "", WHEN(s.train.nvtx)};
const Choice kAnyLayout = {"train.layout", "auto", WHEN(s.train.layout == ImageLayout::automatic)};
const Choice kEarlyStop = {"train.early_stop", "above 0", WHEN(s.train.early_stop > 0)};
const Choice kNoEvaluation = {"train.eval_every", "0", WHEN(s.train.eval_every == 0)};
const Choice kSharded = {"optim.sharded", "", WHEN(s.optim.sharded)};
const Choice kProvoke = {"train.provoke", "", WHEN(s.train.provokes())};

constexpr const char* kNotCaptured = "a CUDA graph does not support it";
constexpr const char* kNoMessages = "the backend's own all-reduce sends no messages that can be delayed";
constexpr const char* kOneAlgorithm = "set launch.allreduce to an algorithm, for example ring";
constexpr const char* kNotImplemented = "this combination is not implemented";
constexpr const char* kNoPhases = "a CUDA graph has no separate phases";
constexpr const char* kNoClasses = "a regression has no classes";

}  // namespace

const std::vector<Conflict>& conflicts() {
  static const std::vector<Conflict> all = {
      {kAccumulate, kStaticGraph, "the first step of a static graph must be synchronized",
       "set ddp.static_graph to false, or train.accumulate to 1"},
      {kStages, kStaticGraph, "several micro-batches are in flight at once", "set ddp.static_graph to false"},
      {kSharedLayers, kStages, kNotImplemented,
       "set one of them to 1; parallel.data uses the remaining ranks"},
      {kSharedLayers, kNoDecay, kNotImplemented, "omit optim.no_decay, or let all ranks share the data"},
      {kStages, kNoDecay, kNotImplemented, "omit optim.no_decay, or let all ranks share the data"},
      {kOnDevices, kSplitModel, "each device holds a whole model, and this one is split",
       "set train.mode to ddp or single, or use another model"},
      {kFp16, kSplitModel, "fp16 scales the gradients of one device, and this model has two",
       "use bf16, or another model"},
      {kEarlyStop, kNoEvaluation, "early stopping needs evaluations",
       "set train.eval_every to 1, or train.early_stop to 0"},
      {kRegression, kClasses, kNoClasses, "omit task.classes"},
      {kRegression, kClassWeights, kNoClasses, "omit task.class_weights"},
      {kRegression, kSmoothing, kNoClasses, "omit train.label_smoothing"},
      {kOwnAllReduce,
       {"launch.backend", "nccl", WHEN(s.launch.backend == "nccl")},
       "its messages are sent between CPUs",
       "leave launch.backend at auto, or set it to gloo or mpi; or set launch.allreduce to auto"},
      {kLatency, kNoAllReduce, kNoMessages, kOneAlgorithm},
      {kBandwidth, kNoAllReduce, kNoMessages, kOneAlgorithm},
      {kAsWorld, kNotDdp, "train.as_world reproduces DDP ranks", "set train.mode to ddp"},
      {kAsWorld,
       {"launch.backend", "nccl or mpi", WHEN(s.launch.backend == "nccl" || s.launch.backend == "mpi")},
       "lockstep starts the ranks without MPI, and they may share a GPU",
       "leave launch.backend at auto: shared and gloo give the same results"},
      {kAsWorld, kAnyLayout, "each measurement may choose another layout",
       "set train.layout to nchw or channels_last"},
      {kAsWorld,
       {"launch.allreduce", "other than auto and ring",
        WHEN(s.launch.has_algorithm() && s.launch.allreduce != "ring")},
       "it sums in a different order from gloo",
       "leave launch.allreduce at auto, or set it to ring"},
      {kAsWorld, kGraph, "a CUDA graph sums with NCCL, in an order that depends on the number of GPUs",
       "set train.graph to false"},
      {kProvoke, kNotDdp, "faults are injected only into DDP", "set train.mode to ddp"},
      {kGraph, kTrace, kNoPhases, "turn one of the two off"},
      {kGraph, kNotResident, "a CUDA graph reads its samples from the device", "set data.resident to true"},
      {kGraph, kOnDevices, kNotCaptured, "use ddp or single"},
      {kGraph, kFp16, kNotCaptured, "use bf16 or fp32"},
      {kGraph, kSplitModel, "a CUDA graph uses one device, and this model has two", "use another model"},
      {kGraph, kAccumulate, kNotCaptured, "set train.accumulate to 1"},
      {kGraph, kProvoke, kNotCaptured, "omit train.provoke"},
      {kGraph, kSharedLayers, kNotCaptured, "set parallel.tensor to 1"},
      {kGraph, kStages, kNotCaptured, "set parallel.pipeline to 1"},
      {kGraph, kSharded, kNotCaptured, "set optim.sharded to false"},
      {kGraph, kCommHook, kNotCaptured, "set ddp.comm_hook to none"},
      {kGraph, kSyncBatchNorm, kNotCaptured, "set ddp.sync_batchnorm to false"},
      {kGraph, kFindUnused, "a CUDA graph cannot search for unused parameters",
       "set it to false; ddp.static_graph finds them once"},
      {kGraph,
       {"launch.backend", "shared or gloo or mpi", WHEN(launch::sums_on_cpus(s.launch.backend))},
       "sums on CPUs need the CPU in each step",
       "leave launch.backend at auto: only NCCL works without the CPU"},
      {kGraph, kCheckpointing, "a CUDA graph cannot restore random state",
       "set model.checkpointing to false"},
      {kGraph, kNvtx, kNoPhases, "turn one of the two off"},
      {kGraph, kOwnAllReduce, "its messages need the CPU in each step", "leave launch.allreduce at auto"},
  };
  return all;
}

#undef WHEN

namespace {

bool is_set(const Loaded& loaded, const std::string& path) {
  return loaded.origins.at(path).kind != Origin::by_default;
}

// a rule is broken by the key that is in the file, if one of the two does
[[noreturn]] void refuse(const Loaded& loaded, const std::string& what, const std::vector<std::string>& paths,
                         const std::string& hint) {
  const auto set =
      std::find_if(paths.begin(), paths.end(), [&](const auto& path) { return is_set(loaded, path); });
  if (set == paths.end()) throw InputError(what, "defaults", hint);
  const auto& origin = loaded.origins.at(*set);
  throw InputError(what, origin.text + (origin.kind == Origin::set ? " " + *set : ""), hint);
}

void check_name(const Loaded& loaded) {
  const std::string& name = loaded.settings.run.name;
  const auto odd = [](unsigned char c) { return c < 0x20 || c == 0x7F || c == '/'; };
  const bool folder = !name.empty() && name.size() <= 200 && name != "." && name != "..";
  if (folder && std::none_of(name.begin(), name.end(), odd)) return;
  refuse(loaded, format("run.name must be the name of a folder, not '{}'", base::printable(name)),
         {"run.name"}, "use letters, digits, '-' and '_'; run.dir sets where the folder is");
}

void check_nesterov(const Loaded& loaded) {
  const OptimSettings& optim = loaded.settings.optim;
  if (!optim.nesterov || optim.momentum > 0 || !is_read("optim.nesterov", loaded.settings)) return;
  refuse(loaded, "optim.nesterov needs optim.momentum above 0", {"optim.nesterov", "optim.momentum"},
         "set optim.momentum, for example 0.9");
}

void check_cycled_momentum(const Loaded& loaded) {
  const ScheduleSettings& schedule = loaded.settings.schedule;
  if (schedule.base_momentum <= schedule.max_momentum) return;
  if (!is_read("schedule.base_momentum", loaded.settings)) return;
  refuse(loaded, "schedule.base_momentum is above schedule.max_momentum",
         {"schedule.base_momentum", "schedule.max_momentum"}, "swap them");
}

// What makes a value none: no text, no number above 0, no entry.
struct Unset {
  bool operator()(const double* value) const { return *value <= 0; }
  bool operator()(const int64_t* value) const { return *value <= 0; }
  template <class Other>
  bool operator()(const Other* value) const {
    if constexpr (requires { value->empty(); }) return value->empty();
    return false;
  }
};

void check_needs(const Loaded& loaded) {
  auto settings = loaded.settings;
  for (const Key* selector : selectors()) {
    const auto* row = chosen_row(settings, selector->path);
    if (!row) continue;
    for (const auto& [name, hint] : row->facts.needs) {
      const Key* key = find_key(selector->section() + "." + name);
      if (!key || !std::visit(Unset{}, key->field(settings))) continue;
      const auto field = key->field(settings);
      const bool number = std::holds_alternative<double*>(field) || std::holds_alternative<int64_t*>(field);
      refuse(loaded, format("{} {} needs {}{}", row->kind, row->name, key->path, number ? " above 0" : ""),
             {key->path, selector->path}, hint);
    }
  }
}

void check_normalize(const Loaded& loaded) {
  const TaskSettings& task = loaded.settings.task;
  if (task.normalize == "mean_std" && (task.mean.empty() || task.mean.size() != task.std.size()))
    refuse(loaded, "task.normalize mean_std needs task.mean and task.std of equal length",
           {"task.mean", "task.std", "task.normalize"}, "give a number for each channel or feature");
}

// "hidden" and "options.width", which a config calls model.hidden and model.options.width.
std::string did_you_mean_of(const TableRow& row, const Key& key, const std::string& name) {
  std::map<std::string, std::string> paths;
  std::vector<std::string> names;
  for (const auto& read : row.facts.reads) {
    names.push_back(read.substr(read.find('.') + 1));
    paths[names.back()] = key.section() + "." + read;
  }
  const auto near = base::nearest(name, names);
  return base::did_you_mean(near ? paths.at(*near) : "");
}

// A task of a library sees all settings, and may read them.
bool may_read_everything(const TableRow* task) {
  const auto& reads = task ? task->facts.reads : std::vector<std::string>();
  return !task || !task->library.empty() || std::find(reads.begin(), reads.end(), "*") != reads.end();
}

// --set schedule.name=none leaves the file's options where they are: they are another row's.
bool is_for_another_row(const Loaded& loaded, const Key& key) {
  return loaded.origins.at(key.path).kind == Origin::file &&
         loaded.origins.at(key.rules.use.selector).kind == Origin::set;
}

void check_options(const Loaded& loaded) {
  if (may_read_everything(chosen_row(loaded.settings, "task.name"))) return;
  for (const Key& key : keys()) {
    if (key.rules.use.selector.empty() || is_for_another_row(loaded, key)) continue;
    for (const auto& name : unknown_options(key, loaded.settings)) {
      const auto& row = *chosen_row(loaded.settings, key.rules.use.selector);
      refuse(loaded, format("unknown option {}.{}", key.path, base::printable(name)), {key.path},
             did_you_mean_of(row, key, name) +
                 (row.facts.reads.empty() ? format("remove it: {} {} reads no options", row.kind, row.name)
                                          : format("use an option of {} {}: {}", row.kind, row.name,
                                                   base::join(row.facts.reads, ", "))));
    }
  }
}

std::string in_words(const char* key, const Settings& settings) {
  return format("{}: {}", key, value_text(*find_key(key), settings));
}

void check_conflict(const Loaded& loaded, const Conflict& conflict) {
  const auto& [one, other, why, hint] = conflict;
  if (!one.is_made(loaded.settings) || !other.is_made(loaded.settings)) return;
  refuse(loaded,
         format("{} cannot be combined with {}, because {}", in_words(one.key, loaded.settings),
                in_words(other.key, loaded.settings), why),
         {one.key, other.key}, hint);
}

void check_delimiter(const Loaded& loaded) {
  if (loaded.settings.task.delimiter.size() == 1) return;
  refuse(loaded,
         format("task.delimiter must be one character, not '{}'",
                base::printable(loaded.settings.task.delimiter)),
         {"task.delimiter"}, R"(use, for example, ",", ";" or "\t")");
}

}  // namespace

void resolve(Loaded& loaded) {
  auto& delimiter = loaded.settings.task.delimiter;
  if (delimiter == R"(\t)") delimiter = "\t";  // a shell hands it on as two letters
  for (const Key& key : keys()) {
    if (key.rules.word.empty() || is_set(loaded, key.path)) continue;
    const auto* meant = chosen_default(loaded.settings, key.path);
    if (!meant) continue;
    YamlNode node;
    node.kind = YamlNode::Kind::scalar;
    node.text = *meant;
    read_value(key, node, {}, loaded.settings);
  }
}

void Mistakes::refuse() const {
  constexpr size_t kMostShown = 20;
  if (found_.empty()) return;
  if (found_.size() == 1) throw InputError(found_[0]);
  std::string text = format("{} mistakes in the config", found_.size());
  for (size_t i = 0; i < std::min(found_.size(), kMostShown); ++i) {
    text += format("\n  {}. ", i + 1);
    for (const char c : describe(found_[i])) text += c == '\n' ? std::string("\n   ") : std::string(1, c);
  }
  if (found_.size() > kMostShown) text += format("\n  and {} more", found_.size() - kMostShown);
  throw InputError(text, found_[0].where(), "fix these, then check with lockstep config CONFIG.yaml");
}

void check_together(const Loaded& loaded) {
  Mistakes mistakes;
  for (const auto& check : {check_name, check_nesterov, check_needs, check_cycled_momentum, check_normalize,
                            check_delimiter, check_options}) {
    mistakes.gather([&] { check(loaded); });
  }
  for (const auto& conflict : conflicts()) mistakes.gather([&] { check_conflict(loaded, conflict); });
  mistakes.refuse();
}

void check_conflicts(const Loaded& loaded) {
  Mistakes mistakes;
  for (const auto& conflict : conflicts()) mistakes.gather([&] { check_conflict(loaded, conflict); });
  mistakes.refuse();
}

// One line for all keys of one cause. If most keys are set, as in a run's config, a default is no choice.
void warn_unused(Loaded& loaded) {
  const Settings defaults;
  const auto written =
      std::count_if(keys().begin(), keys().end(), [&](const Key& key) { return is_set(loaded, key.path); });
  const bool resolved = 2 * static_cast<size_t>(written) > keys().size();
  std::map<std::string, std::vector<std::string>> unused;  // by what selects them
  for (const Key& key : keys()) {
    const bool chosen = !resolved || value_text(key, loaded.settings) != value_text(key, defaults);
    if (!chosen || !is_set(loaded, key.path)) continue;
    if (key.path == "model.checkpointing" && loaded.settings.model.checkpointing) continue;  // refused later
    auto& names = unused[key.rules.use.selector];
    if (!may_be_used(key, loaded.settings)) {
      names.push_back(key.path);
    } else {
      for (const auto& name : unread_options(key, loaded.settings)) names.push_back(name);
    }
  }
  for (const auto& [selector, names] : unused) {
    if (names.empty()) continue;
    const bool one = names.size() == 1;
    const auto origin = loaded.origins.find(names[0]);
    const std::string place =
        one && origin != loaded.origins.end() ? format(" ({})", origin->second.text) : "";
    loaded.warnings.push_back(format("{}{} {} no effect, because {} is {}", base::join(names, ", "), place,
                                     one ? "has" : "have", selector, chosen_name(loaded.settings, selector)));
  }
}

}  // namespace lockstep::config
