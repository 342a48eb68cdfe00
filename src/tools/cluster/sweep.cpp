// --sweep: a task with its own run for each combination of values.
#include <algorithm>
#include <cctype>
#include <optional>
#include <set>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "tools/cluster/job_script.h"
#include "trainer/config/numbers.h"

namespace lockstep::cluster {
namespace {

constexpr size_t kMostTasks = 1000;   // Slurm's default for MaxArraySize is 1001
constexpr size_t kLongestValue = 24;  // in the name of a run
constexpr size_t kLongestRunName = 180;

struct SweptKey {
  std::string key;
  std::vector<std::string> values;
};

[[noreturn]] void refuse_sweep(const std::string& text, const std::string& why) {
  throw InputError(format("--sweep {}: {}", base::printable(text), why), "",
                   "use --sweep optim.lr=0.1,0.01 or --sweep run.seed=0..4");
}

// 0..4
std::optional<std::vector<std::string>> range_of(const std::string& text, const std::string& all) {
  const auto dots = text.find("..");
  if (dots == std::string::npos) return std::nullopt;
  const auto first = config::parse_int(text.substr(0, dots)), last = config::parse_int(text.substr(dots + 2));
  if (!first || !last) return std::nullopt;
  if (*first > *last) refuse_sweep(all, "the range ends before it starts");
  if (static_cast<uint64_t>(*last) - static_cast<uint64_t>(*first) >= kMostTasks)
    refuse_sweep(all, format("more than {} values", kMostTasks));
  std::vector<std::string> values;
  for (int64_t i = 0; i <= *last - *first; ++i) values.push_back(std::to_string(*first + i));
  return values;
}

// not the apostrophe of it's
bool opens_quote(char c, const std::string& before) {
  return (c == '"' || c == '\'') &&
         (before.empty() || std::string_view("[{,: ").find(before.back()) != std::string::npos);
}

// at commas outside brackets and quotes
std::vector<std::string> split_values(const std::string& text) {
  std::vector<std::string> values(1);
  int depth = 0;
  char quote = 0;
  for (const char c : text) {
    if (quote) {
      if (c == quote) quote = 0;
    } else if (opens_quote(c, values.back())) {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    }
    if (c == ',' && depth == 0 && !quote)
      values.emplace_back();
    else
      values.back() += c;
  }
  return values;
}

// optim.lr is lr in a name, unless another swept key ends in lr
std::string short_name(const std::vector<SweptKey>& swept, const std::string& key) {
  const auto last = [](const std::string& path) { return path.substr(path.rfind('.') + 1); };
  const auto same =
      std::ranges::count_if(swept, [&](const auto& other) { return last(other.key) == last(key); });
  return same > 1 ? key : last(key);
}

// [0.9, 0.99] is 0.9_0.99 in a name
std::string safe(const std::string& value) {
  std::string text;
  for (const char c : value.substr(0, kLongestValue)) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = byte < 0x80 && (std::isalnum(byte) || c == '.' || c == '-');
    if (plain)
      text += c;
    else if (!text.empty() && text.back() != '_')
      text += '_';
  }
  return text.substr(0, text.find_last_not_of('_') + 1);
}

SweptKey parse_swept(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == std::string::npos || equals == 0) refuse_sweep(text, "KEY=VALUES expected");
  SweptKey swept{text.substr(0, equals), {}};
  const auto values = text.substr(equals + 1);
  const auto range = range_of(values, text);
  swept.values = range ? *range : split_values(values);
  if (std::ranges::count(swept.values, "")) refuse_sweep(text, "a value is empty");
  const auto different = std::set(swept.values.begin(), swept.values.end()).size();
  if (different < swept.values.size()) refuse_sweep(text, "duplicate value");
  return swept;
}

}  // namespace

std::vector<std::vector<std::string>> sweep_tasks(const std::vector<std::string>& sweeps,
                                                  const std::string& run) {
  std::vector<SweptKey> swept;
  for (const auto& text : sweeps) swept.push_back(parse_swept(text));
  std::vector<std::vector<std::string>> tasks(1);
  std::vector<std::string> names = {run.substr(0, kLongestRunName / 2)};
  std::set<std::string> keys;
  for (const auto& [key, values] : swept) {
    if (!keys.insert(key).second) refuse_sweep(key, "duplicate key");
    if (tasks.size() * values.size() > kMostTasks)
      throw InputError(format("the sweep has more than {} tasks", kMostTasks), "",
                       "sweep fewer values, or use several jobs");
    std::vector<std::vector<std::string>> more;
    std::vector<std::string> more_names;
    for (size_t i = 0; i < tasks.size(); ++i) {
      for (const auto& value : values) {
        more.push_back(tasks[i]);
        more.back().push_back(format("{}={}", key, value));
        more_names.push_back(format("{}-{}{}", names[i], short_name(swept, key), safe(value)));
      }
    }
    tasks = std::move(more);
    names = std::move(more_names);
  }
  if (keys.contains("run.name")) return tasks;
  for (auto& name : names) name = name.substr(0, kLongestRunName);
  const std::multiset<std::string> all(names.begin(), names.end());
  for (size_t i = 0; i < tasks.size(); ++i)  // equal names get the number of the task
    tasks[i].push_back("run.name=" + (all.count(names[i]) > 1 ? format("{}-task{}", names[i], i) : names[i]));
  return tasks;
}

}  // namespace lockstep::cluster
