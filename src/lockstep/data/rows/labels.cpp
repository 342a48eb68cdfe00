#include "lockstep/data/rows/labels.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::data {
namespace {

constexpr size_t kMostClasses = 10'000;

enum class Kind { names, whole_numbers, fractions };

Kind kind_of(const std::vector<std::string>& names) {
  auto kind = Kind::whole_numbers;
  for (const auto& name : names) {
    const auto value = as_number(name);
    if (!value) return Kind::names;
    if (*value != std::floor(*value)) kind = Kind::fractions;
  }
  return kind;
}

// So few may be classes whatever they look like.
const std::map<Kind, int64_t> kSurelyClasses = {
    {Kind::names, 4}, {Kind::whole_numbers, 20}, {Kind::fractions, 20}};
// Rows that a class has, on average, where there are more.
const std::map<Kind, int64_t> kFewestRows = {
    {Kind::names, 2}, {Kind::whole_numbers, 5}, {Kind::fractions, std::numeric_limits<int32_t>::max()}};

}  // namespace

Labels::Labels(int64_t classes, std::vector<std::string> names)
    : training_(!names.empty()), names_(std::move(names)) {
  if (names_.empty())
    for (int64_t i = 0; i < classes; ++i) names_.push_back(format("{}", i));
  for (size_t i = 0; i < names_.size(); ++i) numbers_[names_[i]] = i;
  open_ = names_.empty();
}

int64_t Labels::number(std::string_view text, const Where& where) {
  std::string name(trimmed(text));
  if (name == last_) return last_number_;
  const std::string raw = name;
  // 1, 01 and 1.0 are one class.
  if (const auto value = as_number(name); value && std::abs(*value) < 1e15 && *value == std::floor(*value)) {
    name = format("{}", static_cast<int64_t>(*value));
  }
  auto found = numbers_.find(name);
  if (found == numbers_.end()) found = add(name, where);
  last_ = raw;
  return last_number_ = found->second;
}

void Labels::check_classes(int64_t rows, const std::string& column, const std::string& path) const {
  const auto classes = static_cast<int64_t>(names_.size());
  const auto kind = open_ ? kind_of(names_) : Kind::names;
  if (!open_ || classes <= kSurelyClasses.at(kind) || rows >= kFewestRows.at(kind) * classes) return;
  const auto found = format("{} different ones in {} rows", classes, rows);
  if (kind == Kind::names) {
    throw InputError(
        format("the label column {} has about one class a row: {}", base::printable(column), found), path,
        "set task.label to the column that says a row's class");
  }
  throw InputError(format("the label column {} looks like measured numbers, not classes: {}",
                          base::printable(column), found),
                   path,
                   "set task.kind: regression to predict the number; if they are classes, give them names "
                   "that are no numbers");
}

std::vector<std::string> Labels::sorted(std::vector<int64_t>& place) const {
  std::vector<int64_t> order(names_.size());
  std::iota(order.begin(), order.end(), 0);
  if (open_) {
    const bool numbers =
        std::all_of(names_.begin(), names_.end(), [](auto& n) { return as_number(n).has_value(); });
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      return numbers ? *as_number(names_[a]) < *as_number(names_[b]) : names_[a] < names_[b];
    });
  }
  std::vector<std::string> classes;
  place.resize(names_.size());
  for (size_t i = 0; i < order.size(); ++i) {
    place[order[i]] = i;
    classes.push_back(names_[order[i]]);
  }
  return classes;
}

std::map<std::string, int64_t>::iterator Labels::add(const std::string& name, const Where& where) {
  if (name.empty()) throw InputError("the label is missing", where(), "fill it in, or drop the row");
  if (const auto value = as_number(name); value && !std::isfinite(*value)) {
    throw InputError(format("the label '{}' is no class", base::printable(name)), where(),
                     "write a name or a finite number, or drop the row");
  }
  if (!open_) {
    throw InputError(format("the label '{}' is none of the {} classes {}", base::printable(name),
                            names_.size(), base::printable(base::join(names_, ", "))),
                     where(), training_ ? "the training set has none" : "see task.classes");
  }
  if (names_.size() == kMostClasses) {
    throw InputError(format("more than {} different labels: is this column a class?", kMostClasses), where(),
                     "task.label names the label's column; task.kind: regression predicts a number");
  }
  names_.push_back(name);
  return numbers_.emplace(name, names_.size() - 1).first;
}

}  // namespace lockstep::data
