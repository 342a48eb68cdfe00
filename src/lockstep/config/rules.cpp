#include "lockstep/config/rules.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/config/chosen.h"
#include "lockstep/config/mistakes.h"
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
  if (!optim.nesterov || optim.momentum > 0 || !is_read("optim.nesterov", loaded.settings)) return;
  refuse(loaded, "optim.nesterov needs optim.momentum above 0", {"optim.nesterov", "optim.momentum"},
         "set optim.momentum, 0.9 say");
}

void check_cycled_momentum(const Loaded& loaded) {
  const ScheduleSettings& schedule = loaded.settings.schedule;
  if (schedule.base_momentum <= schedule.max_momentum) return;
  if (!is_read("schedule.base_momentum", loaded.settings)) return;
  refuse(loaded, "schedule.base_momentum is above schedule.max_momentum",
         {"schedule.base_momentum", "schedule.max_momentum"}, "swap them");
}

void check_early_stop(const Loaded& loaded) {
  const TrainSettings& train = loaded.settings.train;
  if (train.early_stop == 0 || train.eval_every > 0) return;
  refuse(loaded, "train.early_stop never acts where train.eval_every is 0: it compares evaluations",
         {"train.early_stop", "train.eval_every"}, "set train.eval_every to 1, or train.early_stop to 0");
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
  if (task.normalize == "mean_std" && (task.mean.empty() || task.mean.size() != task.std.size())) {
    refuse(loaded, "task.normalize mean_std needs task.mean and task.std, equally long",
           {"task.mean", "task.std", "task.normalize"}, "give a number for each channel or feature");
  }
}

void check_regression(const Loaded& loaded) {
  const TaskSettings& task = loaded.settings.task;
  if (task.kind != "regression" || !is_read("task.kind", loaded.settings)) return;
  if (task.classes == 0 && task.class_weights == "none" && loaded.settings.train.label_smoothing == 0) return;
  refuse(loaded, "task.kind regression has no classes to count, weigh or smooth",
         {"task.classes", "task.class_weights", "train.label_smoothing", "task.kind"},
         "leave out task.classes, task.class_weights and train.label_smoothing");
}

void check_allreduce(const Loaded& loaded) {
  const LaunchOptions& launch = loaded.settings.launch;
  if (launch.allreduce != "auto" && launch.backend == "nccl") {
    refuse(loaded,
           format("launch.allreduce {} needs messages between CPUs, and launch.backend is nccl",
                  launch.allreduce),
           {"launch.allreduce", "launch.backend"},
           "set launch.backend to gloo or mpi, or launch.allreduce to auto");
  }
  if (launch.allreduce != "auto" || (launch.latency_us == 0 && launch.bandwidth_gbit == 0)) return;
  refuse(loaded,
         "launch.latency_us and launch.bandwidth_gbit slow messages down, and launch.allreduce auto has none",
         {"launch.latency_us", "launch.bandwidth_gbit", "launch.allreduce"},
         "set launch.allreduce to an algorithm: ring, say");
}

// What a captured step has no place for.
struct Uncaptured {
  const char* key;
  bool (*is_asked)(const Settings&);
  const char* hint;
};
const Uncaptured kUncaptured[] = {
    {"data.resident", [](const Settings& s) { return !s.data.resident; }, "set data.resident to true"},
    {"train.mode", [](const Settings& s) { return s.train.mode == "data_parallel"; }, "use ddp or single"},
    {"train.precision", [](const Settings& s) { return s.train.precision == "fp16"; }, "use bf16 or fp32"},
    {"train.accumulate", [](const Settings& s) { return s.train.accumulate > 1; }, "set it to 1"},
    {"train.provoke", [](const Settings& s) { return s.train.provoke != "none"; }, "leave it out"},
    {"parallel.tensor", [](const Settings& s) { return s.parallel.tensor > 1; }, "set it to 1"},
    {"parallel.pipeline", [](const Settings& s) { return s.parallel.pipeline > 1; }, "set it to 1"},
    {"optim.sharded", [](const Settings& s) { return s.optim.sharded; }, "set it to false"},
    {"ddp.comm_hook", [](const Settings& s) { return s.ddp.comm_hook != "none"; }, "set it to none"},
    {"ddp.sync_batchnorm", [](const Settings& s) { return s.ddp.sync_batchnorm; }, "set it to false"},
    {"ddp.find_unused_parameters", [](const Settings& s) { return s.ddp.find_unused_parameters; },
     "set it to false; ddp.static_graph finds them once"},
    {"launch.backend",
     [](const Settings& s) { return s.launch.backend == "gloo" || s.launch.backend == "mpi"; },
     "leave it at auto: NCCL alone works without the CPU"},
    {"launch.allreduce", [](const Settings& s) { return s.launch.allreduce != "auto"; }, "leave it at auto"},
};

void check_graph(const Loaded& loaded) {
  if (!loaded.settings.train.graph) return;
  for (const auto& [key, is_asked, hint] : kUncaptured) {
    if (!is_asked(loaded.settings)) continue;
    const auto value = value_text(*find_key(key), loaded.settings);
    refuse(loaded, format("train.graph cannot capture a step with {}: {}", key, value), {key, "train.graph"},
           format("{}, or set train.graph to false", hint));
  }
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
  return near ? format("did you mean {}? ", paths.at(*near)) : "";
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
                 format("{} {} reads {}", row.kind, row.name,
                        row.facts.reads.empty() ? "none" : base::join(row.facts.reads, ", ")));
    }
  }
}

void check_delimiter(const Loaded& loaded) {
  if (loaded.settings.task.delimiter.size() == 1) return;
  refuse(loaded,
         format("task.delimiter must be one character, not '{}'",
                base::printable(loaded.settings.task.delimiter)),
         {"task.delimiter"}, R"(",", ";" or "\t" are usual)");
}

}  // namespace

void resolve(Loaded& loaded) {
  auto& delimiter = loaded.settings.task.delimiter;
  if (delimiter == R"(\t)") delimiter = "\t";  // a shell hands it on as two letters
  for (const Key& key : keys()) {
    if (key.rules.word.empty() || is_set(loaded, key.path)) continue;
    const auto* meant = chosen_default(loaded.settings, key.path);
    if (!meant) continue;
    Node node;
    node.kind = Node::Kind::scalar;
    node.text = *meant;
    read_value(key, node, {}, loaded.settings);
  }
}

void check_together(const Loaded& loaded) {
  Mistakes mistakes;
  for (const auto& check :
       {check_name, check_accumulate, check_nesterov, check_needs, check_cycled_momentum, check_early_stop,
        check_normalize, check_regression, check_allreduce, check_graph, check_delimiter, check_options}) {
    mistakes.gather([&] { check(loaded); });
  }
  mistakes.refuse();
}

// One line for all keys of one cause. Where most keys are set, as in a run's resolved config, a default is no
// choice.
void warn_unused(Loaded& loaded) {
  const Settings defaults;
  const auto written =
      std::count_if(keys().begin(), keys().end(), [&](const Key& key) { return is_set(loaded, key.path); });
  const bool resolved = 2 * static_cast<size_t>(written) > keys().size();
  std::map<std::string, std::vector<std::string>> unused;  // by what selects them
  for (const Key& key : keys()) {
    const bool chosen = !resolved || value_text(key, loaded.settings) != value_text(key, defaults);
    if (!chosen || !is_set(loaded, key.path)) continue;
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
    loaded.warnings.push_back(format("{} {} set and not used: {} is {}{}", base::join(names, ", "),
                                     one ? "is" : "are", selector, chosen_name(loaded.settings, selector),
                                     place));
  }
}

}  // namespace lockstep::config
