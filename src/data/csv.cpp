#include "data/csv.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/format.h"
#include "base/text.h"
#include "data/lines.h"

namespace lockstep {
namespace {

constexpr const char* kAgain = "fetch or copy the file again";

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
  // Out of range: as good as infinite. (A number too small for a double is out of range too, and is refused
  // as well.)
  return status == std::errc() ? value : std::numeric_limits<double>::infinity();
}

/// Which fields of a row are read.
struct Columns {
  size_t count = 0;  // fields in every row
  std::vector<size_t> features;
  std::vector<std::string> names;  // of the features
  std::optional<size_t> label;
};

size_t find_column(const std::string& wanted, const std::vector<std::string>& header, bool named,
                   const std::string& where) {
  if (named) {
    const auto found = std::find(header.begin(), header.end(), wanted);
    if (found != header.end()) return found - header.begin();
  }
  size_t index = 0;
  const auto [end, status] = std::from_chars(wanted.data(), wanted.data() + wanted.size(), index);
  if (status == std::errc() && end == wanted.data() + wanted.size() && index < header.size()) return index;
  const auto near = named ? nearest(wanted, header) : std::nullopt;
  throw InputError(format("there is no column '{}'", printable(wanted)), where,
                   near ? format("did you mean {}?", *near)
                        : format("there are {} columns, 0 to {}{}", header.size(), header.size() - 1,
                                 named ? ": " + printable(join(header, ", "), 200) : ""));
}

Columns choose_columns(const std::vector<std::string>& header, const CsvOptions& options,
                       const std::string& where) {
  Columns columns{.count = header.size(), .features = {}, .names = {}, .label = {}};
  if (options.labelled) {
    columns.label =
        options.label.empty() ? header.size() - 1 : find_column(options.label, header, options.header, where);
  }
  for (const auto& name : options.features) {
    columns.features.push_back(find_column(name, header, options.header, where));
    if (columns.features.back() == columns.label) {
      throw InputError(format("column '{}' is the label and a feature", printable(name)), where,
                       "take it out of task.features, or set task.label to another column");
    }
  }
  if (options.features.empty()) {
    for (size_t i = 0; i < header.size(); ++i) {
      if (i != columns.label) columns.features.push_back(i);
    }
  }
  if (columns.features.empty()) {
    throw InputError("there is no column but the label", where, "is task.delimiter the file's?");
  }
  for (size_t i : columns.features) columns.names.push_back(options.header ? header[i] : format("{}", i));
  return columns;
}

/// Numbers the labels as they come; sorted() then gives each its place in the order of the classes.
class Labels {
 public:
  explicit Labels(const CsvOptions& options) : options_(options) {
    std::vector<std::string> fixed = options.class_names;
    for (int64_t i = 0; fixed.empty() && i < options.classes; ++i) names_.push_back(format("{}", i));
    if (!fixed.empty()) names_ = std::move(fixed);
    for (size_t i = 0; i < names_.size(); ++i) numbers_[names_[i]] = i;
    open_ = names_.empty();
  }

  int64_t number(std::string_view text, const LineReader& lines) {
    std::string name(trimmed(text));
    if (name == last_) return last_number_;
    const std::string raw = name;
    // 1, 01 and 1.0 are one class.
    if (const auto value = as_number(name);
        value && std::abs(*value) < 1e15 && *value == std::floor(*value)) {
      name = format("{}", static_cast<int64_t>(*value));
    }
    auto found = numbers_.find(name);
    if (found == numbers_.end()) found = add(name, lines);
    last_ = raw;
    return last_number_ = found->second;
  }

  /// The classes in order (as numbers where all are numbers), and what each number so far becomes.
  std::vector<std::string> sorted(std::vector<int64_t>& place) const {
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

 private:
  static constexpr size_t kMostClasses = 10'000;

  std::map<std::string, int64_t>::iterator add(const std::string& name, const LineReader& lines) {
    if (name.empty()) throw InputError("the label is missing", lines.where(), "fill it in, or drop the row");
    if (const auto value = as_number(name); value && !std::isfinite(*value)) {
      throw InputError(format("the label '{}' is no class", printable(name)), lines.where(),
                       "write a name or a finite number, or drop the row");
    }
    if (!open_) {
      throw InputError(format("the label '{}' is none of the {} classes {}", printable(name), names_.size(),
                              printable(join(names_, ", "))),
                       lines.where(),
                       options_.class_names.empty() ? "see task.classes" : "the training set has none");
    }
    if (names_.size() == kMostClasses) {
      throw InputError(format("more than {} different labels: is this column a class?", kMostClasses),
                       lines.where(), "task.label names the label's column");
    }
    names_.push_back(name);
    return numbers_.emplace(name, names_.size() - 1).first;
  }

  const CsvOptions& options_;
  std::vector<std::string> names_;
  std::map<std::string, int64_t> numbers_;
  bool open_ = true;  // new classes may come
  std::string last_ = "\n";
  int64_t last_number_ = 0;
};

float number_at(std::string_view field, const std::string& column, bool first_row, const LineReader& lines) {
  const auto text = trimmed(field);
  const auto value = as_number(text);
  const char* hint = "every feature must be a finite number: fill or drop what is missing";
  if (text.empty())
    throw InputError(format("column {}: nothing where a number belongs", column), lines.where(), hint);
  if (!value) {
    throw InputError(format("column {}: '{}' is not a number", column, printable(text, 40)), lines.where(),
                     first_row ? "if this line names the columns, set task.header: true" : hint);
  }
  if (!(std::abs(*value) <= std::numeric_limits<float>::max())) {
    throw InputError(format("column {}: '{}' is not a finite number", column, printable(text, 40)),
                     lines.where(), hint);
  }
  return static_cast<float>(*value);
}

int64_t count_rows(const std::string& path, bool header) {
  LineReader lines(path);
  std::string_view line;
  int64_t rows = header ? -1 : 0;
  while (lines.next(line)) ++rows;
  if (rows <= 0)
    throw InputError(rows < 0 ? "the file is empty" : "the file has no rows of data", path, kAgain);
  return rows;
}

struct Row {
  std::vector<std::string_view> fields;
  std::string unquoted;
};

}  // namespace

std::vector<std::string> first_csv_line(const std::string& path, char delimiter) {
  LineReader lines(path);
  std::string_view line;
  if (!lines.next(line)) throw InputError("the file is empty", path, kAgain);
  Row row;
  split_fields(line, delimiter, lines, row.fields, row.unquoted);
  std::vector<std::string> names;
  for (auto field : row.fields) names.emplace_back(trimmed(field));
  return names;
}

CsvTable read_csv(const std::string& path, const CsvOptions& options, Arena& arena) {
  const int64_t rows = count_rows(path, options.header);
  const auto columns = choose_columns(first_csv_line(path, options.delimiter), options, path);
  CsvTable table;
  table.columns = columns.names;
  table.features = arena.empty({rows, static_cast<int64_t>(columns.features.size())}, at::kFloat);
  if (columns.label) table.labels = arena.empty({rows}, at::kLong);
  float* out = table.features.mutable_data_ptr<float>();
  int64_t* label = columns.label ? table.labels.mutable_data_ptr<int64_t>() : nullptr;

  Labels labels(options);
  LineReader lines(path);
  std::string_view line;
  if (options.header) lines.next(line);
  Row row;
  for (int64_t i = 0; i < rows; ++i) {
    if (!lines.next(line))
      throw InputError("the file became shorter while it was read", path,
                       "start again once nothing writes to it");
    split_fields(line, options.delimiter, lines, row.fields, row.unquoted);
    if (row.fields.size() != columns.count) {
      throw InputError(format("{} fields where the first line has {}", row.fields.size(), columns.count),
                       lines.where(), "mend this line: a field that holds the delimiter stands in quotes");
    }
    for (size_t c = 0; c < columns.features.size(); ++c) {
      *out++ = number_at(row.fields[columns.features[c]], columns.names[c], i == 0 && !options.header, lines);
    }
    if (label) label[i] = labels.number(row.fields[*columns.label], lines);
  }
  std::vector<int64_t> place;
  table.class_names = labels.sorted(place);
  if (label) std::transform(label, label + rows, label, [&](int64_t number) { return place[number]; });
  return table;
}

}  // namespace lockstep
