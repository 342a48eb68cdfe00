#include "tools/report/run_list.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
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

// no two have one folder
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

// a line an error
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

struct Order {
  const char* key;
  Rank (*rank)(const RunData&);
};
constexpr std::array<Order, 5> kOrders = {
    {{"name",
      [](const RunData& run) {
        return Rank{1, 0, run.name};
      }},
     {"state", [](const RunData& run) { return rank_of(run_folder::name_of(run.status->state)); }},
     {"epoch", [](const RunData& run) { return rank_of(static_cast<double>(run.status->epoch)); }},
     {"step", [](const RunData& run) { return rank_of(static_cast<double>(run.status->step)); }},
     {"when", [](const RunData& run) { return rank_of(-run.status->updated); }}}};

bool has_setting(const RunList& list, const std::string& key) {
  return std::ranges::any_of(list.runs, [&](const auto& run) {
    return std::ranges::find(run.settings, key, &std::pair<std::string, std::string>::first) !=
           run.settings.end();
  });
}

bool is_order(const std::string& key) {
  return std::ranges::any_of(kOrders, [&](const auto& order) { return key == order.key; });
}

Ranking ranking_by(const RunList& list, const std::string& key) {
  for (const auto& order : kOrders) {
    if (key == order.key) return order.rank;
  }
  if (holds(metrics_of(list), key)) {
    const double sign = holds(kMoreIsBetter, key) ? -1 : 1;
    return [key, sign](const RunData& run) { return rank_of(sign * course_of(run, key).best); };
  }
  return [key](const RunData& run) { return rank_of(setting(run, key)); };
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

void check_word(const RunList& list, const std::string& key, const std::string& option) {
  const auto metrics = metrics_of(list);
  if (is_order(key) || holds(metrics, key) || has_setting(list, key) || config::find_key(key)) return;
  std::vector<std::string> words;
  for (const auto& order : kOrders) words.emplace_back(order.key);
  std::ranges::copy(metrics, std::back_inserter(words));
  const auto known = base::join(words, ", ");
  std::ranges::copy(list.differs, std::back_inserter(words));
  auto near = base::nearest(key, words);
  if (const auto meant = config::nearest_path(key); !near && config::find_key(meant)) near = meant;
  throw InputError(
      format("the runs have no '{}'", base::printable(key)), option,
      (near ? format("did you mean {}? ", *near) : "") + format("{} or a config key is wanted", known));
}

std::string setting(const RunData& run, const std::string& key) {
  const auto found = std::ranges::find(run.settings, key, &std::pair<std::string, std::string>::first);
  return found == run.settings.end() ? "" : found->second;
}

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

}  // namespace lockstep::report
