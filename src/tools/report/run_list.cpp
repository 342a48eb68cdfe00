#include "tools/report/run_list.h"

#include <string.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ctime>
#include <limits>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/program.h"
#include "lockstep/base/text.h"
#include "tools/report/page.h"
#include "trainer/config/keys.h"

namespace lockstep::report {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::array<const char*, 2> kOwnKeys = {"run.name", "run.dir"};  // the folder says so
constexpr std::array kMoreIsBetter = {"accuracy", "f1", "auc", "r2", "reward", "recent_reward"};
constexpr std::array<const char*, 2> kNoMetrics = {"seconds", "samples_per_second"};

template <class Words>
bool holds(const Words& words, const std::string& word) {
  return std::ranges::find(words, word) != words.end();
}

// Numbers in a name count as numbers: run-9 before run-10.
bool comes_before(const std::string& left, const std::string& right) {
  return ::strverscmp(left.c_str(), right.c_str()) < 0;
}

// No two runs have the same folder.
bool run_before(const RunData& left, const RunData& right) {
  return left.name != right.name ? comes_before(left.name, right.name) : left.folder < right.folder;
}

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::error_code failed;
  std::vector<fs::path> found;
  fs::directory_iterator at(folder, failed);
  for (; !failed && at != fs::directory_iterator(); at.increment(failed)) {
    std::error_code none;
    const auto hidden = at->path().filename().string().starts_with(".");
    if (!hidden && at->is_directory(none)) found.push_back(at->path());
  }
  if (failed)
    throw InputError("the folder cannot be read: " + failed.message(), folder.string(),
                     "pass the folder that holds the runs (run.dir)");
  return found;
}

void add_run(RunList& list, const fs::path& folder) {
  try {
    auto run = read_run(folder);
    if (run.status) return list.runs.push_back(std::move(run));
    list.passed_over.emplace_back(run.folder, base::split(run.troubles.front(), '\n').at(0));
  } catch (const std::exception& error) {
    list.passed_over.emplace_back(folder.string(), base::split(describe(error), '\n').at(0));
  }
}

std::vector<std::string> differing(const std::vector<RunData>& runs) {
  std::vector<std::string> keys, places;
  std::map<std::string, std::set<std::string>> values;
  for (const auto& run : runs) {
    for (const auto& [key, value] : run.settings) {
      auto& seen = values[key];
      if (seen.empty()) {
        const auto* known = config::find_key(key);
        (known && known->rules.about == config::About::place ? places : keys).push_back(key);
      }
      seen.insert(value);
    }
  }
  keys.insert(keys.end(), places.begin(), places.end());  // where things are comes last
  std::erase_if(keys, [&](const auto& key) { return values[key].size() < 2 || holds(kOwnKeys, key); });
  return keys;
}

// --- what runs are sorted by: numbers before words, null at the end ---

json number_json(double value) {
  return std::isnan(value) ? json() : json(value);
}

json sort_key(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return number_json(value);
  return text.empty() ? json() : json(text);
}

bool sorts_before(const json& left, const json& right) {
  if (left.is_string() && right.is_string())
    return comes_before(left.get_ref<const std::string&>(), right.get_ref<const std::string&>());
  return !left.is_null() && (right.is_null() || left < right);
}

std::string time_text(double seconds) {
  const auto at = static_cast<time_t>(seconds);
  std::tm parts{};
  char text[32] = "–";
  if (seconds > 0 && localtime_r(&at, &parts)) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts);
  return text;
}

// A word that --sort and --columns take besides metrics and config keys.
struct Fact {
  const char *word, *head;
  std::string (*text)(const RunData&);
};
const Fact kFacts[] = {
    {"name", "run", [](const RunData& run) { return base::printable(run.name); }},
    {"state", "state",
     [](const RunData& run) { return std::string(run_folder::name_of(run.status->state)); }},
    {"epoch", "epoch",
     [](const RunData& run) { return format("{}/{}", run.status->epoch, run.status->epochs); }},
    {"step", "step", [](const RunData& run) { return format("{}", run.status->step); }},
    {"when", "when", [](const RunData& run) { return time_text(run.status->updated); }}};

const Fact* find_fact(const std::string& word) {
  const auto* fact = std::ranges::find(kFacts, word, &Fact::word);
  return fact == std::end(kFacts) ? nullptr : fact;
}

// A metric over a run's epochs; NaN where the run has none.
struct MetricSummary {
  double last = std::numeric_limits<double>::quiet_NaN(), best = last;
};
MetricSummary metric_summary(const RunData& run, const std::string& metric) {
  MetricSummary summary;
  const auto found = run.epochs.find(metric);
  if (found == run.epochs.end() || found->second.y.empty()) return summary;
  summary.last = found->second.y.back();
  const bool more = holds(kMoreIsBetter, metric);
  for (const auto value : found->second.y)
    summary.best = more ? std::fmax(summary.best, value) : std::fmin(summary.best, value);
  return summary;
}

std::vector<std::string> metrics_of(const RunList& list) {
  std::set<std::string> names;
  for (const auto& run : list.runs)
    for (const auto& [name, curve] : run.epochs)
      if (!holds(kNoMetrics, name)) names.insert(name);
  return {names.begin(), names.end()};
}

json key_of(const RunData& run, const std::string& word, bool is_metric) {
  if (word == "when") return -run.status->updated;  // the newest first, to the second
  if (const auto* fact = find_fact(word)) return sort_key(fact->text(run));
  if (!is_metric) return sort_key(setting(run, word));
  return number_json((holds(kMoreIsBetter, word) ? -1 : 1) * metric_summary(run, word).best);
}

// InputError where the option's word is nothing to sort or show runs by.
void check_word(const RunList& list, const std::string& word, const std::string& option) {
  const bool is_setting =
      std::ranges::any_of(list.runs, [&](const auto& run) { return !setting(run, word).empty(); });
  if (find_fact(word) || is_setting || config::find_key(word)) return;
  const auto metrics = metrics_of(list);
  if (holds(metrics, word)) return;
  std::vector<std::string> words;
  for (const auto& fact : kFacts) words.emplace_back(fact.word);
  std::ranges::copy(metrics, std::back_inserter(words));
  const auto known = base::join(words, ", ");
  std::ranges::copy(list.differs, std::back_inserter(words));
  auto near = base::nearest(word, words);
  if (const auto meant = config::nearest_path(word); !near && config::find_key(meant)) near = meant;
  throw InputError(format("the runs have no '{}'", base::printable(word)), option,
                   base::did_you_mean(near.value_or("")) + format("use {} or a config key", known));
}

// --- the table ---

constexpr size_t kWidest = 40;  // a cell

std::string clipped(const std::string& text) {
  if (base::letters(text) <= kWidest) return text;
  size_t at = 0;
  for (size_t seen = 0; at < text.size(); ++at)
    if ((static_cast<unsigned char>(text[at]) & 0xC0) != 0x80 && ++seen == kWidest) break;
  return text.substr(0, at) + "…";
}

bool has(const RunList& list, const std::string& metric) {
  return std::ranges::any_of(list.runs, [&](const auto& run) { return run.epochs.contains(metric); });
}

// The columns of a word: each its head, and a cell for each run.
void add_columns(Table& columns, const RunList& list, const std::string& word) {
  const auto add = [&](const std::string& head, const auto& cell) {
    auto& column = columns.emplace_back(1, head);
    for (const auto& run : list.runs) column.push_back(clipped(cell(run)));
  };
  if (const auto* fact = find_fact(word)) return add(fact->head, fact->text);
  if (!has(list, word))
    return add(word, [&](const auto& run) {
      const auto value = setting(run, word);
      return value.empty() ? "–" : base::printable(value);
    });
  add(word, [&](const auto& run) { return metric_text(metric_summary(run, word).last); });
  add("best", [&](const auto& run) { return metric_text(metric_summary(run, word).best); });
}

constexpr size_t kMostKeys = 8;  // that differ, in a table without --columns

// The loss, what the task counts, and the keys in which the runs differ.
std::vector<std::string> usual_columns(const RunList& list) {
  std::vector<std::string> words = {"state", "epoch", "step"};
  words.emplace_back(has(list, "eval_loss") ? "eval_loss" : "train_loss");
  if (!has(list, words.back())) words.pop_back();
  for (const auto* name : {"accuracy", "r2", "recent_reward"})
    if (has(list, name)) words.emplace_back(name);
  auto keys = list.differs;
  if (keys.size() > kMostKeys)  // as in a folder of several tasks: the names of task and model come first
    std::ranges::stable_partition(keys, [](const auto& key) { return key.ends_with(".name"); });
  keys.resize(std::min(keys.size(), kMostKeys));
  std::ranges::copy(keys, std::back_inserter(words));
  words.emplace_back("when");
  return words;
}

size_t width_of(const std::string& lines) {
  size_t most = 0;
  for (const auto& line : base::split(lines, '\n')) most = std::max(most, base::letters(line));
  return most;
}

// --- CSV and JSON ---

std::string csv_cell(const nlohmann::ordered_json& value) {
  if (!value.is_string()) return value.is_null() ? "" : value.dump();
  return base::csv_field(base::printable(value.get<std::string>(), base::kLongestPath));
}

nlohmann::ordered_json run_json(const RunList& list, const std::vector<std::string>& names,
                                const RunData& run) {
  const auto& status = *run.status;
  nlohmann::ordered_json::object_t metrics, differs;  // emplace_back() looks for no equal name
  for (const auto& name : names) {
    const auto summary = metric_summary(run, name);
    if (run.epochs.contains(name))
      metrics.emplace_back(name, nlohmann::ordered_json{{"last", number_json(summary.last)},
                                                        {"best", number_json(summary.best)}});
  }
  for (const auto& key : list.differs) differs.emplace_back(key, setting(run, key));
  return {
      {"name", run.name},          {"folder", run.folder},      {"state", run_folder::name_of(status.state)},
      {"reason", status.reason},   {"epoch", status.epoch},     {"epochs", status.epochs},
      {"step", status.step},       {"attempt", status.attempt}, {"seconds", status.seconds},
      {"updated", status.updated}, {"host", status.host},       {"job_id", status.job_id},
      {"metrics", metrics},        {"differs", differs},        {"troubles", run.troubles}};
}

}  // namespace

RunList list_runs(const std::vector<fs::path>& folders) {
  RunList list;
  for (const auto& folder : folders) add_run(list, folder);
  std::ranges::sort(list.runs, run_before);
  std::ranges::sort(list.passed_over);
  list.differs = differing(list.runs);
  return list;
}

RunList list_runs(const fs::path& folder) {
  std::error_code failed;
  if (!fs::is_directory(folder, failed))
    throw InputError(
        "no such folder", folder.string(),
        base::did_you_mean_file(folder.string()) + "pass the folder that holds the runs (run.dir)");
  if (fs::exists(folder / "status.json", failed)) return list_runs(std::vector{folder});
  return list_runs(folders_in(folder));
}

std::string setting(const RunData& run, const std::string& key) {
  const auto found = std::ranges::find(run.settings, key, &std::pair<std::string, std::string>::first);
  return found == run.settings.end() ? "" : found->second;
}

double last_of(const RunData& run, const std::string& metric) {
  return metric_summary(run, metric).last;
}

std::string metric_text(double value) {
  return std::isnan(value) ? "–" : format("{:.4g}", value);
}

void sort_runs(RunList& list, const std::string& word) {
  if (list.runs.empty()) return;
  check_word(list, word, "--sort");
  const bool is_metric = holds(metrics_of(list), word);
  std::ranges::sort(list.runs, [&](const RunData& left, const RunData& right) {
    const auto a = key_of(left, word, is_metric), b = key_of(right, word, is_metric);
    return sorts_before(a, b) || (!sorts_before(b, a) && run_before(left, right));
  });
}

std::string run_table(const RunList& list, int width, const std::vector<std::string>& asked) {
  if (list.runs.empty()) return "";
  Table columns;
  std::set<std::string> seen;
  auto words = asked.empty() ? usual_columns(list) : asked;
  words.insert(words.begin(), "name");
  for (const auto& word : words) {
    check_word(list, word, "--columns");
    if (seen.insert(word).second) add_columns(columns, list, word);
  }
  std::vector<std::string> hidden;
  if (asked.empty())
    std::ranges::copy_if(list.differs, std::back_inserter(hidden),
                         [&](const auto& key) { return !seen.contains(key); });
  auto text = aligned(transposed(columns));
  while (columns.size() > 2 && width > 0 && width_of(text) > static_cast<size_t>(width)) {
    hidden.insert(hidden.begin(), columns.back()[0]);
    columns.pop_back();
    text = aligned(transposed(columns));
  }
  if (!hidden.empty()) text += format("not shown: {} (see --json)\n", base::listed(hidden, hidden.size()));
  return text;
}

std::string run_csv(const RunList& list) {
  std::string head, rows;
  const auto metrics = metrics_of(list);
  for (const auto& run : list.runs) {
    nlohmann::ordered_json cells = {{"name", run.name},
                                    {"state", run_folder::name_of(run.status->state)},
                                    {"epoch", run.status->epoch},
                                    {"step", run.status->step},
                                    {"seconds", run.status->seconds}};
    for (const auto& name : metrics) {
      const auto summary = metric_summary(run, name);
      cells.emplace(name, number_json(summary.last));
      cells.emplace("best " + name, number_json(summary.best));
    }
    for (const auto& key : list.differs) cells.emplace(key, setting(run, key));
    head.clear();
    for (const auto& [name, cell] : cells.items()) {
      head += (head.empty() ? "" : ",") + csv_cell(name);
      rows += (name == "name" ? "" : ",") + csv_cell(cell);
    }
    rows += "\n";
  }
  return head.empty() ? "" : head + "\n" + rows;
}

nlohmann::ordered_json run_json(const RunList& list) {
  auto runs = nlohmann::ordered_json::array(), passed_over = runs;
  const auto names = metrics_of(list);
  for (const auto& run : list.runs) runs.push_back(run_json(list, names, run));
  for (const auto& [folder, reason] : list.passed_over)
    passed_over.push_back({{"folder", folder}, {"reason", reason}});
  return {{"schema", 1}, {"runs", runs}, {"differs", list.differs}, {"passed_over", passed_over}};
}

}  // namespace lockstep::report
