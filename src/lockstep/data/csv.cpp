#include "lockstep/data/csv.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/data/line_reader.h"

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
  std::string label_name;
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
  const auto near = named ? base::nearest(wanted, header) : std::nullopt;
  throw InputError(format("there is no column '{}'", base::printable(wanted)), where,
                   near ? format("did you mean {}?", *near)
                        : format("there are {} columns, 0 to {}{}", header.size(), header.size() - 1,
                                 named ? ": " + base::printable(base::join(header, ", "), 200) : ""));
}

/// A name that two columns have says nothing, and predict goes by names.
void check_names(const std::vector<std::string>& header, bool named, const Columns& columns,
                 const std::string& where) {
  auto used = columns.features;
  if (columns.label) used.push_back(*columns.label);
  std::unordered_set<size_t> seen;
  std::unordered_map<std::string_view, int> count;
  for (const auto& name : header) ++count[name];
  for (size_t i : used) {
    if (!seen.insert(i).second) {
      throw InputError(format("column '{}' stands twice among the features", base::printable(header[i])),
                       where, "take it out of task.features once");
    }
    if (named && count[header[i]] > 1) {
      throw InputError(format("two columns are called '{}'", base::printable(header[i])), where,
                       "give each column a name of its own, or leave these out of task.features");
    }
  }
}

Columns choose_columns(const std::vector<std::string>& header, const CsvOptions& options,
                       const std::string& where) {
  Columns columns{.count = header.size(), .features = {}, .names = {}, .label = {}, .label_name = {}};
  if (options.labelled) {
    columns.label =
        options.label.empty() ? header.size() - 1 : find_column(options.label, header, options.header, where);
  }
  for (const auto& name : options.features) {
    columns.features.push_back(find_column(name, header, options.header, where));
    if (columns.features.back() == columns.label) {
      throw InputError(format("column '{}' is the label and a feature", base::printable(name)), where,
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
  check_names(header, options.header, columns, where);
  const auto name_of = [&](size_t i) { return options.header ? header[i] : format("{}", i); };
  for (size_t i : columns.features) columns.names.push_back(name_of(i));
  if (columns.label) columns.label_name = name_of(*columns.label);
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

  int64_t number(std::string_view text, const data::LineReader& lines) {
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

  /// Measured numbers would each become a class of their own.
  void check_classes(int64_t rows, const std::string& column, const std::string& path) const {
    constexpr size_t kSurelyClasses = 20;
    if (!open_ || names_.size() <= kSurelyClasses) return;
    bool fraction = false;
    for (const auto& name : names_) {
      const auto value = as_number(name);
      if (!value) return;
      fraction = fraction || *value != std::floor(*value);
    }
    if (!fraction && 2 * static_cast<int64_t>(names_.size()) <= rows) return;
    throw InputError(
        format("the label column {} looks like measured numbers, not classes: {} different ones in "
               "{} rows",
               base::printable(column), names_.size(), rows),
        path,
        "set task.kind: regression to predict the number; if they are classes, give them names "
        "that are no numbers");
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

  std::map<std::string, int64_t>::iterator add(const std::string& name, const data::LineReader& lines) {
    if (name.empty()) throw InputError("the label is missing", lines.where(), "fill it in, or drop the row");
    if (const auto value = as_number(name); value && !std::isfinite(*value)) {
      throw InputError(format("the label '{}' is no class", base::printable(name)), lines.where(),
                       "write a name or a finite number, or drop the row");
    }
    if (!open_) {
      throw InputError(format("the label '{}' is none of the {} classes {}", base::printable(name),
                              names_.size(), base::printable(base::join(names_, ", "))),
                       lines.where(),
                       options_.class_names.empty() ? "see task.classes" : "the training set has none");
    }
    if (names_.size() == kMostClasses) {
      throw InputError(format("more than {} different labels: is this column a class?", kMostClasses),
                       lines.where(),
                       "task.label names the label's column; task.kind: regression predicts a number");
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

float number_at(std::string_view field, const std::string& column, bool first_row,
                const data::LineReader& lines) {
  const auto text = trimmed(field);
  const auto value = as_number(text);
  const char* hint = "every feature must be a finite number: fill or drop what is missing";
  if (text.empty())
    throw InputError(format("column {}: nothing where a number belongs", column), lines.where(), hint);
  if (!value) {
    throw InputError(format("column {}: '{}' is not a number", column, base::printable(text, 40)),
                     lines.where(),
                     first_row ? "if this line names the columns, set task.header: true" : hint);
  }
  if (!(std::abs(*value) <= std::numeric_limits<float>::max())) {
    throw InputError(format("column {}: '{}' is not a finite number", column, base::printable(text, 40)),
                     lines.where(), hint);
  }
  return static_cast<float>(*value);
}

struct Extent {
  int64_t rows = 0;   // of data
  int64_t bytes = 0;  // of all lines, with their ends
};

Extent extent_of(const std::string& path, bool header) {
  data::LineReader lines(path);
  std::string_view line;
  Extent extent{.rows = header ? -1 : 0};
  for (; lines.next(line); ++extent.rows) extent.bytes += static_cast<int64_t>(line.size()) + 1;
  if (extent.rows <= 0)
    throw InputError(extent.rows < 0 ? "the file is empty" : "the file has no rows of data", path, kAgain);
  return extent;
}

struct Row {
  std::vector<std::string_view> fields;
  std::string unquoted;
};

void read_row(std::string_view line, const CsvOptions& options, const Columns& columns,
              const data::LineReader& lines, Row& row) {
  data::split_fields(line, options.delimiter, lines, row.fields, row.unquoted);
  if (row.fields.size() == columns.count) return;
  throw InputError(format("{} fields where the first line has {}", row.fields.size(), columns.count),
                   lines.where(), "mend this line: a field that holds the delimiter stands in quotes");
}

/// A field takes a byte at least. Where the first line promises more of them than the file can hold, a row is
/// too short: it is looked for before there is memory for them all.
void check_room(const std::string& path, const Extent& extent, const CsvOptions& options,
                const Columns& columns) {
  if (static_cast<int64_t>(columns.count) <= (extent.bytes + extent.rows) / extent.rows) return;
  data::LineReader lines(path);
  std::string_view line;
  Row row;
  while (lines.next(line)) read_row(line, options, columns, lines, row);
}

}  // namespace

std::vector<std::string> first_csv_line(const std::string& path, char delimiter) {
  data::LineReader lines(path);
  std::string_view line;
  if (!lines.next(line)) throw InputError("the file is empty", path, kAgain);
  Row row;
  data::split_fields(line, delimiter, lines, row.fields, row.unquoted);
  std::vector<std::string> names;
  for (auto field : row.fields) names.emplace_back(trimmed(field));
  return names;
}

CsvTable read_csv(const std::string& path, const CsvOptions& options, Arena& arena) {
  const auto extent = extent_of(path, options.header);
  const int64_t rows = extent.rows;
  const auto columns = choose_columns(first_csv_line(path, options.delimiter), options, path);
  check_room(path, extent, options, columns);
  CsvTable table;
  table.columns = columns.names;
  table.features = arena.empty({rows, static_cast<int64_t>(columns.features.size())}, at::kFloat);
  const bool classes = columns.label && !options.numbers;
  if (classes) table.labels = arena.empty({rows}, at::kLong);
  if (columns.label && options.numbers) table.labels = arena.empty({rows, 1}, at::kFloat);
  float* out = table.features.mutable_data_ptr<float>();
  int64_t* label = classes ? table.labels.mutable_data_ptr<int64_t>() : nullptr;
  float* number = columns.label && !classes ? table.labels.mutable_data_ptr<float>() : nullptr;

  Labels labels(options);
  data::LineReader lines(path);
  std::string_view line;
  if (options.header) lines.next(line);
  Row row;
  for (int64_t i = 0; i < rows; ++i) {
    if (!lines.next(line))
      throw InputError("the file became shorter while it was read", path,
                       "start again once nothing writes to it");
    read_row(line, options, columns, lines, row);
    const bool first = i == 0 && !options.header;
    for (size_t c = 0; c < columns.features.size(); ++c) {
      *out++ = number_at(row.fields[columns.features[c]], columns.names[c], first, lines);
    }
    if (label) label[i] = labels.number(row.fields[*columns.label], lines);
    if (number) number[i] = number_at(row.fields[*columns.label], columns.label_name, first, lines);
  }
  if (number) table.class_names = {columns.label_name};
  if (!label) return table;
  labels.check_classes(rows, columns.label_name, path);
  std::vector<int64_t> place;
  table.class_names = labels.sorted(place);
  std::transform(label, label + rows, label, [&](int64_t number) { return place[number]; });
  return table;
}

}  // namespace lockstep
