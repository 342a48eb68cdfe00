#include "tools/report/run_list.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <ctime>
#include <functional>
#include <limits>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "trainer/config/keys.h"

namespace lockstep::report {
namespace {

namespace fs = std::filesystem;

constexpr std::array<const char*, 2> kOwnKeys = {"run.name", "run.dir"};  // the folder says so
constexpr std::array<const char*, 5> kMoreIsBetter = {"accuracy", "f1", "auc", "reward", "recent_reward"};
constexpr std::array<const char*, 2> kNoMetrics = {"seconds", "samples_per_second"};

template <class Words>
bool holds(const Words& words, const std::string& word) {
  return std::ranges::find(words, word) != words.end();
}

// numbers in a name count as numbers: run-9 before run-10
bool comes_before(const std::string& left, const std::string& right) {
  size_t i = 0, j = 0;
  const auto digits = [](const std::string& text, size_t at) {
    return std::min(text.find_first_not_of("0123456789", at), text.size()) - at;
  };
  for (; i < left.size() && j < right.size(); ++i, ++j) {
    const size_t m = digits(left, i), n = digits(right, j);
    if (m > 0 && n > 0 && m != n) return m < n;
    if (left[i] != right[j]) return left[i] < right[j];
  }
  return left.size() - i < right.size() - j;
}

// no two runs have the same folder
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
    throw InputError("the folder cannot be looked into: " + failed.message(), folder.string(),
                     "pass the folder that holds the runs, like runs");
  return found;
}

// the first line of the error
std::string why(const std::exception& error) {
  const auto text = describe(error);
  return text.substr(0, text.find('\n'));
}

void add_run(RunList& list, const fs::path& folder) {
  try {
    auto run = read_numbers(folder);
    if (run.status) return list.runs.push_back(std::move(run));
    const auto& reason = run.troubles.empty() ? run.verdict : run.troubles.front();
    list.passed_over.emplace_back(run.folder, reason.substr(0, reason.find('\n')));
  } catch (const std::exception& error) {
    list.passed_over.emplace_back(folder.string(), why(error));
  }
}

bool is_place(const std::string& key) {
  const auto* known = config::find_key(key);
  return known && known->rules.about == config::About::place;
}

std::vector<std::string> differing(const std::vector<RunData>& runs) {
  std::vector<std::string> order;
  std::map<std::string, std::set<std::string>> values;
  for (const auto& run : runs) {
    for (const auto& [key, value] : run.settings) {
      auto& seen = values[key];
      if (seen.empty()) order.push_back(key);
      seen.insert(value);
    }
  }
  std::erase_if(order, [&](const auto& key) { return values[key].size() < 2 || holds(kOwnKeys, key); });
  std::vector<std::string> sorted;
  std::ranges::remove_copy_if(order, std::back_inserter(sorted), is_place);
  std::ranges::copy_if(order, std::back_inserter(sorted), is_place);
  return sorted;
}

std::optional<double> as_number(const std::string& text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Numbers before words, nothing at the end.
struct Rank {
  int kind = 2;
  double number = 0;
  std::string text = {};
};

Rank rank_of(double number) {
  return std::isnan(number) ? Rank{} : Rank{0, number};
}

Rank rank_of(const std::string& text) {
  if (text.empty()) return {};
  const auto number = as_number(text);
  return number ? rank_of(*number) : Rank{1, 0, text};
}

bool operator<(const Rank& left, const Rank& right) {
  if (left.kind != right.kind) return left.kind < right.kind;
  if (left.kind == 0) return left.number < right.number;
  return left.kind == 1 && comes_before(left.text, right.text);
}

using Ranking = std::function<Rank(const RunData&)>;

struct Column {
  std::string head;
  std::vector<std::string> cells = {};
  bool right = false;    // numbers
  bool clipped = false;  // may be, where room is short
  bool stays = false;    // however narrow the terminal
};

std::string time_text(double seconds) {
  const auto at = static_cast<time_t>(seconds);
  std::tm parts{};
  char text[32] = "–";
  if (seconds > 0 && localtime_r(&at, &parts)) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts);
  return text;
}

// A word that --sort and --columns take besides metrics and config keys.
struct Fact {
  const char* word;
  Column column;
  std::string (*text)(const RunData&);
  Rank (*rank)(const RunData&);
};
const Fact kFacts[] = {
    {"name",
     {.head = "run", .clipped = true, .stays = true},
     [](const RunData& run) { return base::printable(run.name); },
     [](const RunData& run) {
       return Rank{1, 0, run.name};
     }},
    {"state",
     {.head = "state", .clipped = true, .stays = true},
     [](const RunData& run) { return std::string(run_folder::name_of(run.status->state)); },
     [](const RunData& run) { return rank_of(run_folder::name_of(run.status->state)); }},
    {"epoch",
     {.head = "epoch", .right = true},
     [](const RunData& run) { return format("{}/{}", run.status->epoch, run.status->epochs); },
     [](const RunData& run) { return rank_of(static_cast<double>(run.status->epoch)); }},
    {"step",
     {.head = "step", .right = true},
     [](const RunData& run) { return format("{}", run.status->step); },
     [](const RunData& run) { return rank_of(static_cast<double>(run.status->step)); }},
    {"when",
     {.head = "when"},
     [](const RunData& run) { return time_text(run.status->updated); },
     [](const RunData& run) { return rank_of(-run.status->updated); }}};

const Fact* find_fact(const std::string& word) {
  const auto* fact = std::ranges::find(kFacts, word, &Fact::word);
  return fact == std::end(kFacts) ? nullptr : fact;
}

bool has_setting(const RunList& list, const std::string& key) {
  return std::ranges::any_of(list.runs, [&](const auto& run) {
    return std::ranges::find(run.settings, key, &std::pair<std::string, std::string>::first) !=
           run.settings.end();
  });
}

// A metric over a run's epochs; NaN where the run has none.
struct Course {
  double last, best;
};
Course course_of(const RunData& run, const std::string& metric) {
  Course course{std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::quiet_NaN()};
  const auto found = run.epochs.find(metric);
  if (found == run.epochs.end() || found->second.y.empty()) return course;
  course.last = found->second.y.back();
  const bool more = holds(kMoreIsBetter, metric);
  for (const auto value : found->second.y)
    course.best = more ? std::fmax(course.best, value) : std::fmin(course.best, value);
  return course;
}

std::vector<std::string> metrics_of(const RunList& list) {
  std::set<std::string> names;
  for (const auto& run : list.runs) {
    for (const auto& [name, curve] : run.epochs) {
      if (!holds(kNoMetrics, name)) names.insert(name);
    }
  }
  return {names.begin(), names.end()};
}

Ranking ranking_by(const RunList& list, const std::string& key) {
  if (const auto* fact = find_fact(key)) return fact->rank;
  if (holds(metrics_of(list), key)) {
    const double sign = holds(kMoreIsBetter, key) ? -1 : 1;
    return [key, sign](const RunData& run) { return rank_of(sign * course_of(run, key).best); };
  }
  return [key](const RunData& run) { return rank_of(setting(run, key)); };
}

// InputError where the option's `key` is not a word to sort or show runs by.
void check_word(const RunList& list, const std::string& key, const std::string& option) {
  const auto metrics = metrics_of(list);
  if (find_fact(key) || holds(metrics, key) || has_setting(list, key) || config::find_key(key)) return;
  std::vector<std::string> words;
  for (const auto& fact : kFacts) words.emplace_back(fact.word);
  std::ranges::copy(metrics, std::back_inserter(words));
  const auto known = base::join(words, ", ");
  std::ranges::copy(list.differs, std::back_inserter(words));
  auto near = base::nearest(key, words);
  if (const auto meant = config::nearest_path(key); !near && config::find_key(meant)) near = meant;
  throw InputError(
      format("the runs have no '{}'", base::printable(key)), option,
      (near ? format("did you mean {}? ", *near) : "") + format("{} or a config key is wanted", known));
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
    throw InputError("no such folder", folder.string(), "pass the folder that holds the runs, like runs");
  if (fs::exists(folder / "status.json", failed)) return list_runs(std::vector{folder});
  return list_runs(folders_in(folder));
}

std::string setting(const RunData& run, const std::string& key) {
  const auto found = std::ranges::find(run.settings, key, &std::pair<std::string, std::string>::first);
  return found == run.settings.end() ? "" : found->second;
}

void sort_runs(RunList& list, const std::string& key) {
  if (list.runs.empty()) return;
  check_word(list, key, "--sort");
  const auto rank = ranking_by(list, key);
  std::vector<std::pair<decltype(rank(list.runs[0])), size_t>> order;
  for (size_t i = 0; i < list.runs.size(); ++i) order.emplace_back(rank(list.runs[i]), i);
  std::ranges::sort(order, [&](const auto& left, const auto& right) {
    return left.first < right.first ||
           (!(right.first < left.first) && run_before(list.runs[left.second], list.runs[right.second]));
  });
  std::vector<RunData> sorted;
  for (const auto& row : order) sorted.push_back(std::move(list.runs[row.second]));
  list.runs = std::move(sorted);
}

// --- as a table and as JSON ---

namespace {

using base::letters;

constexpr size_t kGap = 2;
constexpr size_t kLongest = 40;   // a cell, where the width is free
constexpr size_t kShortest = 12;  // so much of a cell stays before a column is left out

using Columns = std::vector<Column>;

std::string clipped(const std::string& text, size_t width) {
  if (letters(text) <= width) return text;
  size_t at = 0;
  for (size_t seen = 0; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0) != 0x80 && ++seen == width) break;
  }
  return text.substr(0, at) + "…";
}

size_t width_of(const Column& column) {
  size_t width = letters(column.head);
  for (const auto& cell : column.cells) width = std::max(width, letters(cell));
  return width;
}

std::string metric_text(double value) {
  return std::isnan(value) ? "–" : format("{:.4g}", value);
}

template <class Cell>
void add(Columns& columns, const RunList& list, Column column, const Cell& cell) {
  for (const auto& run : list.runs) column.cells.push_back(cell(run));
  columns.push_back(std::move(column));
}

bool has(const RunList& list, const std::string& metric) {
  return std::ranges::any_of(list.runs, [&](const auto& run) { return run.epochs.contains(metric); });
}

// The loss, and what the task counts.
std::vector<std::string> shown_metrics(const RunList& list) {
  std::vector<std::string> names;
  if (has(list, "eval_loss")) {
    names.emplace_back("eval_loss");
  } else if (has(list, "train_loss")) {
    names.emplace_back("train_loss");
  }
  for (const auto* name : {"accuracy", "recent_reward"}) {
    if (has(list, name)) names.emplace_back(name);
  }
  return names;
}

std::string setting_text(const RunData& run, const std::string& key) {
  const auto value = setting(run, key);
  return value.empty() ? "–" : base::printable(value);
}

void add_metric(Columns& columns, const RunList& list, const std::string& metric) {
  add(columns, list, {.head = metric, .right = true},
      [&](const auto& run) { return metric_text(course_of(run, metric).last); });
  add(columns, list, {.head = "best", .right = true},
      [&](const auto& run) { return metric_text(course_of(run, metric).best); });
}

void add_column(Columns& columns, const RunList& list, const std::string& word) {
  if (const auto* fact = find_fact(word)) return add(columns, list, fact->column, fact->text);
  if (has(list, word)) return add_metric(columns, list, word);
  add(columns, list, {.head = word, .clipped = true},
      [&](const auto& run) { return setting_text(run, word); });
}

// The metrics and the keys in which the runs differ.
std::vector<std::string> usual_columns(const RunList& list) {
  std::vector<std::string> words = {"state", "epoch", "step"};
  std::ranges::copy(shown_metrics(list), std::back_inserter(words));
  std::ranges::copy(list.differs, std::back_inserter(words));
  words.emplace_back("when");
  return words;
}

Columns columns_of(const RunList& list, const std::vector<std::string>& asked) {
  Columns columns;
  add_column(columns, list, "name");
  std::set<std::string> seen = {"name"};
  for (const auto& word : asked.empty() ? usual_columns(list) : asked) {
    check_word(list, word, "--columns");
    if (seen.insert(word).second) add_column(columns, list, word);
  }
  return columns;
}

size_t sum_of(const std::vector<size_t>& widths) {
  size_t sum = 0;
  for (const auto width : widths) sum += width + kGap;
  return sum - kGap;
}

// The widest cell that may be clipped, or nullptr.
size_t* widest_of(const Columns& columns, std::vector<size_t>& widths) {
  size_t* widest = nullptr;
  for (size_t i = 0; i < columns.size(); ++i) {
    if (columns[i].clipped && widths[i] > kShortest && (!widest || widths[i] > *widest)) widest = &widths[i];
  }
  return widest;
}

// Long cells become shorter first, then columns from the right are left out.
std::vector<std::string> fit(Columns& columns, std::vector<size_t>& widths, size_t room) {
  std::vector<std::string> left_out;
  while (sum_of(widths) > room) {
    if (auto* widest = widest_of(columns, widths)) {
      --*widest;
      continue;
    }
    const auto last =
        std::find_if(columns.rbegin(), columns.rend(), [](const auto& one) { return !one.stays; });
    if (last == columns.rend()) break;
    left_out.insert(left_out.begin(), last->head);
    const auto at = columns.rend() - last - 1;
    widths.erase(widths.begin() + at);
    columns.erase(columns.begin() + at);
  }
  return left_out;
}

std::string padded(const std::string& text, size_t width, bool right) {
  const auto cell = clipped(text, width);
  const std::string blanks(width - letters(cell), ' ');
  return right ? blanks + cell : cell + blanks;
}

std::string row(const Columns& columns, const std::vector<size_t>& widths, int64_t index) {
  std::string text;
  for (size_t i = 0; i < columns.size(); ++i) {
    const auto& cell = index < 0 ? columns[i].head : columns[i].cells[static_cast<size_t>(index)];
    text += (i > 0 ? std::string(kGap, ' ') : "") + padded(cell, widths[i], columns[i].right);
  }
  return text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
}

nlohmann::json number_json(double value) {
  return std::isnan(value) ? nlohmann::json() : nlohmann::json(value);
}

nlohmann::ordered_json run_json(const RunList& list, const std::vector<std::string>& names,
                                const RunData& run) {
  const auto& status = *run.status;
  nlohmann::ordered_json::object_t metrics, differs;  // emplace_back() looks for no equal name
  for (const auto& name : names) {
    const auto course = course_of(run, name);
    if (run.epochs.contains(name))
      metrics.emplace_back(name, nlohmann::ordered_json{{"last", number_json(course.last)},
                                                        {"best", number_json(course.best)}});
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

std::string run_table(const RunList& list, int width, const std::vector<std::string>& asked) {
  if (list.runs.empty()) return "";
  auto columns = columns_of(list, asked);
  std::vector<size_t> widths;
  for (const auto& column : columns) widths.push_back(std::min(width_of(column), kLongest));
  const auto left_out =
      fit(columns, widths, width > 0 ? static_cast<size_t>(width) : std::numeric_limits<size_t>::max());
  std::string text = row(columns, widths, -1);
  for (size_t i = 0; i < list.runs.size(); ++i) text += row(columns, widths, static_cast<int64_t>(i));
  if (!left_out.empty()) text += format("no room for: {} (see --json)\n", base::join(left_out, ", "));
  return text;
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
