#include "lockstep/data/rows/fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::data {
Labels::Labels(int64_t classes, std::vector<std::string> names, const std::string& column)
    : subject_(column.empty() ? "the label" : "column " + base::printable(column) + ":"),
      training_(!names.empty()),
      most_(column.empty() ? 10'000 : 1000),
      names_(std::move(names)) {
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
  if (const auto value = as_number(name); value && std::abs(*value) < 1e15 && *value == std::floor(*value))
    name = format("{}", static_cast<int64_t>(*value));
  auto found = numbers_.find(name);
  if (found == numbers_.end()) found = add(name, where);
  last_ = raw;
  return last_number_ = found->second;
}

void Labels::check_classes(int64_t rows, const std::string& column, const std::string& path) const {
  const auto classes = static_cast<int64_t>(names_.size());
  if (!open_) return;
  bool numbers = true, fractions = false;
  for (const auto& name : names_) {
    const auto value = as_number(name);
    numbers = numbers && value;
    fractions = fractions || (value && *value != std::floor(*value));
  }
  const auto found = format("{} different ones in {} rows", classes, rows);
  if (!numbers && classes > 4 && rows < 2 * classes)
    throw InputError(
        format("the label column {} has about one class per row: {}", base::printable(column), found), path,
        "set task.label to the column that holds the class");
  if (numbers && classes > 20 && (fractions || rows < 5 * classes))
    throw InputError(format("the label column {} looks like measured numbers, not classes: {}",
                            base::printable(column), found),
                     path, "set task.kind: regression, or give the classes names that are not numbers");
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
  if (name.empty()) throw InputError("the label is missing", where(), "fill it in, or remove the row");
  if (const auto value = as_number(name); value && !std::isfinite(*value))
    throw InputError(format("{} '{}' is not a class", subject_, base::printable(name)), where(),
                     "write a name or a finite number, or remove the row");
  if (!open_)
    throw InputError(format("{} '{}' is not one of the {} classes {}", subject_, base::printable(name),
                            names_.size(), base::printable(base::join(names_, ", "))),
                     where(),
                     training_ ? "remove the row, or add such rows to the training set" : "see task.classes");
  if (names_.size() == most_)
    throw InputError(format("{} has more than {} different values: is this column a class?", subject_, most_),
                     where(),
                     "set task.label to the label's column, task.kind: regression to predict a number, or "
                     "task.ignore to leave the column out");
  names_.push_back(name);
  return numbers_.emplace(name, names_.size() - 1).first;
}

bool is_label_name(std::string_view name) {
  const auto lower = base::lower_case(name);
  return lower == "label" || lower == "target" || lower == "class";
}

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::optional<double> as_number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size() || text.empty()) return std::nullopt;
  // out of range, also if too small for a double
  return status == std::errc() ? value : std::numeric_limits<double>::infinity();
}

float number_at(std::string_view field, const std::string& column, const Where& where) {
  const auto value = as_number(trimmed(field));
  if (value && std::abs(*value) <= std::numeric_limits<float>::max()) return static_cast<float>(*value);
  throw InputError(format("column {}: '{}' is not a finite number", column, base::printable(field, 40)),
                   where(), "write a finite number, or remove the row");
}

size_t find_column(const std::string& wanted, const std::vector<std::string>& header, bool named,
                   const std::string& where) {
  const auto found = std::find(header.begin(), header.end(), wanted);
  if (named && found != header.end()) return found - header.begin();
  const auto index = base::parse_number<size_t>(wanted);
  if (index && *index < header.size()) return *index;
  throw InputError(
      format("there is no column '{}'", base::printable(wanted)), where,
      format("{}see the file's columns: {}0 to {}",
             base::did_you_mean(named ? base::nearest(wanted, header).value_or("") : ""),
             named ? base::printable(base::join(header, ", "), 200) + ", or " : "", header.size() - 1));
}

size_t find_label(const std::string& wanted, const std::vector<std::string>& header, bool named,
                  const std::vector<std::string>& taken, const std::string& where) {
  const size_t last = header.size() - 1;
  const bool is_name = named && std::find(header.begin(), header.end(), wanted) != header.end();
  if (wanted == "-1" && !is_name) return last;
  if (!wanted.empty()) return find_column(wanted, header, named, where);
  std::vector<size_t> others;
  for (const auto& name : taken) others.push_back(find_column(name, header, named, where));
  std::vector<size_t> found;
  for (size_t i = 0; named && i < header.size(); ++i) {
    if (is_label_name(header[i]) && std::find(others.begin(), others.end(), i) == others.end())
      found.push_back(i);
  }
  if (found.empty() || found.back() == last) return last;
  if (found.size() == 1) return found[0];
  throw InputError(format("the label could be column '{}' or '{}'", base::printable(header[found[0]]),
                          base::printable(header[found[1]])),
                   where, "set task.label to one of them");
}

std::string column_key(const std::vector<std::string>& header, bool named, size_t column) {
  const auto& name = header[column];
  const bool own = named && !name.empty() && std::count(header.begin(), header.end(), name) == 1;
  return own && !base::invalid_utf8(name) ? name : format("{}", column);
}

}  // namespace lockstep::data
