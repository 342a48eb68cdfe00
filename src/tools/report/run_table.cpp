// A list of runs as a table for people, and as JSON.
#include <algorithm>
#include <cmath>
#include <ctime>
#include <limits>
#include <set>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/base/wrap.h"
#include "tools/report/run_list.h"

namespace lockstep::report {
namespace {

using base::letters;

constexpr size_t kGap = 2;
constexpr size_t kLongest = 40;   // a cell, where the width is free
constexpr size_t kShortest = 12;  // so much of a cell stays before a column is left out

struct Column {
  std::string head;
  std::vector<std::string> cells = {};
  bool right = false;    // numbers
  bool clipped = false;  // may be, where room is short
  bool stays = false;    // however narrow the terminal
};
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

std::string number_text(double value) {
  return std::isnan(value) ? "–" : format("{:.4g}", value);
}

std::string time_text(double seconds) {
  const auto at = static_cast<time_t>(seconds);
  std::tm parts{};
  char text[32] = "–";
  if (seconds > 0 && localtime_r(&at, &parts)) std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &parts);
  return text;
}

template <class Cell>
void add(Columns& columns, const RunList& list, Column column, const Cell& cell) {
  for (const auto& run : list.runs) column.cells.push_back(cell(run));
  columns.push_back(std::move(column));
}

bool has(const RunList& list, const std::string& metric) {
  return std::ranges::any_of(list.runs, [&](const auto& run) { return run.epochs.contains(metric); });
}

// The loss they were judged by, and what the task counts.
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
      [&](const auto& run) { return number_text(course_of(run, metric).last); });
  add(columns, list, {.head = "best", .right = true},
      [&](const auto& run) { return number_text(course_of(run, metric).best); });
}

struct Fact {
  const char* word;  // as sort_runs() takes it
  Column column;
  std::string (*text)(const RunData&);
};
const Fact kFacts[] = {
    {"name",
     {.head = "run", .clipped = true, .stays = true},
     [](const RunData& run) { return base::printable(run.name); }},
    {"state",
     {.head = "state", .clipped = true, .stays = true},
     [](const RunData& run) { return std::string(run_folder::name_of(run.status->state)); }},
    {"epoch",
     {.head = "epoch", .right = true},
     [](const RunData& run) { return format("{}/{}", run.status->epoch, run.status->epochs); }},
    {"step",
     {.head = "step", .right = true},
     [](const RunData& run) { return format("{}", run.status->step); }},
    {"when", {.head = "when"}, [](const RunData& run) { return time_text(run.status->updated); }}};

void add_column(Columns& columns, const RunList& list, const std::string& word) {
  const auto* fact = std::ranges::find(kFacts, word, &Fact::word);
  if (fact != std::end(kFacts)) return add(columns, list, fact->column, fact->text);
  if (has(list, word)) return add_metric(columns, list, word);
  add(columns, list, {.head = word, .clipped = true},
      [&](const auto& run) { return setting_text(run, word); });
}

// what says which run did best, and in what they differ
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

// Long cells give way first, then columns from the right.
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
