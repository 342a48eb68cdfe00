#include "lockstep/data/csv.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/data/cells.h"
#include "lockstep/data/rows/fields.h"
#include "lockstep/data/rows/line_reader.h"

namespace lockstep {
namespace {

using data::find_column, data::trimmed;

constexpr const char* kAgain = "fetch or copy the file again";

/// Which fields of a row are read.
struct Columns {
  size_t count = 0;  // fields in every row
  std::vector<size_t> features;
  std::vector<std::string> names;  // of the features
  std::optional<size_t> label;
  std::string label_name, label_key = {};
};

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
  if (options.header) data::check_name_lengths(header, where);
  Columns columns{.count = header.size(), .features = {}, .names = {}, .label = {}, .label_name = {}};
  if (options.labelled) {
    auto taken = options.features;
    taken.insert(taken.end(), options.ignore.begin(), options.ignore.end());
    columns.label = data::find_label(options.label, header, options.header, taken, where);
  }
  std::unordered_set<size_t> ignored;
  for (const auto& name : options.ignore) {
    ignored.insert(find_column(name, header, options.header, where));
    if (!columns.label || !ignored.contains(*columns.label)) continue;
    throw InputError(format("column '{}' is the label and in task.ignore", base::printable(name)), where,
                     "take it out of task.ignore, or set task.label to another column");
  }
  for (const auto& name : options.features) {
    columns.features.push_back(find_column(name, header, options.header, where));
    if (columns.features.back() == columns.label) {
      throw InputError(format("column '{}' is the label and a feature", base::printable(name)), where,
                       "take it out of task.features, or set task.label to another column");
    }
    if (ignored.contains(columns.features.back())) {
      throw InputError(format("column '{}' is in task.features and in task.ignore", base::printable(name)),
                       where, "take it out of one of them");
    }
  }
  if (options.features.empty()) {
    for (size_t i = 0; i < header.size(); ++i) {
      if (i != columns.label && !ignored.contains(i)) columns.features.push_back(i);
    }
  }
  if (columns.features.empty()) {
    throw InputError("there is no column but the label", where,
                     ignored.empty() ? "is task.delimiter the file's?" : "take one out of task.ignore");
  }
  check_names(header, options.header, columns, where);
  const auto name_of = [&](size_t i) { return options.header ? header[i] : format("{}", i); };
  for (size_t i : columns.features) columns.names.push_back(name_of(i));
  if (!columns.label) return columns;
  columns.label_name = name_of(*columns.label);
  columns.label_key = data::column_key(header, options.header, *columns.label);
  return columns;
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

struct LineFields {
  std::vector<std::string_view> fields;
  std::string unquoted;
};

void read_row(std::string_view line, const CsvOptions& options, const Columns& columns,
              const data::LineReader& lines, LineFields& row) {
  data::split_fields(line, options.delimiter, lines, row.fields, row.unquoted);
  if (row.fields.size() == columns.count) return;
  throw InputError(format("{} fields where the first line has {}", row.fields.size(), columns.count),
                   lines.where(), "fix this line: put a field that holds the delimiter in quotes");
}

/// A field takes a byte at least. Where the first line promises more of them than the file can hold, a row is
/// too short: it is looked for before there is memory for them all.
void check_room(const std::string& path, const Extent& extent, const CsvOptions& options,
                const Columns& columns) {
  if (static_cast<int64_t>(columns.count) <= (extent.bytes + extent.rows) / extent.rows) return;
  data::LineReader lines(path);
  std::string_view line;
  LineFields row;
  while (lines.next(line)) read_row(line, options, columns, lines, row);
}

void keep_rows(CsvTable& table, int64_t kept, const std::string& path) {
  table.dropped = table.features.size(0) - kept;
  if (kept == 0)
    throw InputError("every row has a cell without a value: none is left", path,
                     "leave columns out (task.ignore), or set task.missing: mean");
  table.features = table.features.narrow(0, 0, kept);
  if (table.labels.defined()) table.labels = table.labels.narrow(0, 0, kept);
}

/// Whole numbers, and none twice. Most columns show within their first rows that they are no such thing.
bool is_id(const at::Tensor& column) {
  constexpr int64_t kSample = 1000;
  for (const int64_t rows : {std::min(kSample, column.numel()), column.numel()}) {
    const auto values = std::get<0>(column.narrow(0, 0, rows).contiguous().sort());
    const float* value = values.const_data_ptr<float>();
    for (int64_t i = 0; i < rows; ++i) {
      if (!(value[i] == std::floor(value[i])) || (i > 0 && value[i] == value[i - 1])) return false;
    }
  }
  return true;
}

std::vector<std::string> ids_in(const CsvTable& table) {
  constexpr int64_t kFewestRows = 20;
  std::vector<std::string> ids;
  if (table.features.size(0) < kFewestRows) return ids;
  for (size_t i = 0; i < table.columns.size(); ++i)
    if (is_id(table.features.select(1, static_cast<int64_t>(i)))) ids.push_back(table.columns[i]);
  return ids;
}

}  // namespace

std::vector<std::string> first_csv_line(const std::string& path, char delimiter) {
  data::LineReader lines(path);
  std::string_view line;
  if (!lines.next(line)) throw InputError("the file is empty", path, kAgain);
  LineFields row;
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
  table.label = columns.label_key;
  if (columns.label) table.label_column = static_cast<int64_t>(*columns.label);
  table.features = arena.empty({rows, static_cast<int64_t>(columns.features.size())}, at::kFloat);
  const bool classes = columns.label && !options.numbers;
  if (classes) table.labels = arena.empty({rows}, at::kLong);
  if (columns.label && options.numbers) table.labels = arena.empty({rows, 1}, at::kFloat);
  float* out = table.features.mutable_data_ptr<float>();
  int64_t* label = classes ? table.labels.mutable_data_ptr<int64_t>() : nullptr;
  float* number = columns.label && !classes ? table.labels.mutable_data_ptr<float>() : nullptr;

  data::Cells cells(columns.names, columns.label ? std::optional(columns.label_name) : std::nullopt, options);
  data::Labels labels(options.classes, options.class_names);
  data::LineReader lines(path);
  const data::Where where = [&lines] { return lines.where(); };
  std::string_view line;
  if (options.header) lines.next(line);
  LineFields row;
  int64_t kept = 0;
  for (int64_t i = 0; i < rows; ++i) {
    if (!lines.next(line))
      throw InputError("the file became shorter while it was read", path,
                       "start again once nothing writes to it");
    read_row(line, options, columns, lines, row);
    const bool first = i == 0 && !options.header;
    bool whole = true;
    float* const begin = out;
    for (size_t c = 0; c < columns.features.size(); ++c) {
      *out = cells.number(c, row.fields[columns.features[c]], first, where);
      whole = !std::isnan(*out++) && whole;
    }
    bool known = true;
    if (number) {
      number[kept] = cells.number(cells.label(), row.fields[*columns.label], first, where);
      known = !std::isnan(number[kept]);
    } else if (label) {
      known = cells.has_class(row.fields[*columns.label], where);
    }
    if (options.missing == Missing::drop && !(whole && known)) {
      out = begin;
      continue;
    }
    if (label && known) label[kept] = labels.number(row.fields[*columns.label], where);
    ++kept;
  }
  cells.check(path);
  table.missing = cells.missing();
  keep_rows(table, kept, path);
  if (options.features.empty()) table.ids = ids_in(table);
  if (number) table.class_names = {columns.label_name};
  if (!label) return table;
  labels.check_classes(kept, columns.label_name, path);
  std::vector<int64_t> place;
  table.class_names = labels.sorted(place);
  std::transform(label, label + kept, label, [&](int64_t number) { return place[number]; });
  return table;
}

}  // namespace lockstep
