#include "trainer/config/rules.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "trainer/config/chosen.h"
#include "trainer/config/conflicts.h"
#include "trainer/config/mistakes.h"
#include "trainer/config/value.h"

namespace lockstep::config {
namespace {

bool is_set(const Loaded& loaded, const std::string& path) {
  return loaded.origins.at(path).kind != Origin::by_default;
}

// a rule is broken by the key that is in the file, if one of the two does
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

std::string in_words(const Choice& choice) {
  return std::string(choice.key) + (*choice.value ? " " : "") + choice.value;
}

void check_conflict(const Loaded& loaded, const Conflict& conflict) {
  const auto& [one, other, why, hint] = conflict;
  if (!one.is_made(loaded.settings) || !other.is_made(loaded.settings)) return;
  refuse(loaded, format("{} and {} exclude each other: {}", in_words(one), in_words(other), why),
         {one.key, other.key}, hint);
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
    YamlNode node;
    node.kind = YamlNode::Kind::scalar;
    node.text = *meant;
    read_value(key, node, {}, loaded.settings);
  }
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

// make_model() refuses it: nothing more is to be said.
bool is_refused_later(const Key& key, const Settings& settings) {
  return key.path == "model.checkpointing" && settings.model.checkpointing;
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
    if (!chosen || !is_set(loaded, key.path) || is_refused_later(key, loaded.settings)) continue;
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
