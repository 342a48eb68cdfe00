#include "lockstep/data/csv.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/data/npy.h"
#include "lockstep/data/rows/fields.h"
#include "lockstep/data/rows/line_reader.h"
#include "lockstep/data/rows/text_rows.h"

namespace lockstep {
namespace {

using data::as_number, data::find_column, data::trimmed, data::Where;

constexpr size_t kLongestName = 40;  // in messages
constexpr std::array<std::string_view, 4> kNoValue = {"na", "n/a", "#n/a", "<na>"};
constexpr std::array<std::string_view, 5> kNoNumber = {"nan", "null", "none", "?", "-"};

template <size_t kCount>
bool holds(const std::array<std::string_view, kCount>& words, std::string_view text) {
  return std::find(words.begin(), words.end(), data::lower_case(text)) != words.end();
}

bool is_nan(std::string_view text) {
  const auto value = as_number(text);
  return value && std::isnan(*value);
}

/// Empty, or a word for that: NA, N/A, NaN, null, None, ?, -.
bool is_missing(std::string_view text) {
  return text.empty() || holds(kNoValue, text) || holds(kNoNumber, text) || is_nan(text);
}

/// A class may be called None. NA is a class, too, unless rows without one are left out.
bool is_missing_class(std::string_view text, MissingValues rule) {
  return text.empty() || is_nan(text) || (rule == MissingValues::drop && holds(kNoValue, text));
}

/// The fields of a row to read.
struct Columns {
  size_t count = 0;  // fields in every row
  std::vector<size_t> features = {};
  std::vector<std::string> names = {};  // of the features
  std::vector<bool> categories = {};    // which of the features are
  std::optional<size_t> label = {};
  std::string label_name = {}, label_key = {};
};

/// Counts the cells without a number by column, for one error about all. The label is the last column.
class Cells {
 public:
  Cells(const Columns& columns, const CsvOptions& options) : options_(options) {
    for (const auto& name : columns.names) columns_.push_back({.name = name});
    if (columns.label) columns_.push_back({.name = columns.label_name});
  }

  /// NaN for a cell without a number that a float can hold.
  float number(size_t column, std::string_view field, bool first_row, const Where& where) {
    const auto text = trimmed(field);
    const auto value = number_of(text);
    if (value && std::abs(*value) <= std::numeric_limits<float>::max()) return static_cast<float>(*value);
    auto& of = columns_[column];
    if (is_missing(text)) {
      ++of.missing;
    } else if (value) {
      ++of.endless;
    } else {
      ++of.texts;
      if (of.some.size() <= kExamples) of.some.insert(base::printable(text, kLongestName));
    }
    note(column, first_row, where);
    return std::numeric_limits<float>::quiet_NaN();
  }

  bool has_class(size_t column, std::string_view field, const Where& where) {
    if (!is_missing_class(trimmed(field), options_.missing)) return true;
    ++columns_[column].missing;
    note(column, false, where);
    return false;
  }

  size_t label() const { return columns_.size() - 1; }
  bool decimal_commas() const { return !comma_.empty(); }

  /// InputError unless MissingValues allows all of them.
  void check(const std::string& path) const {
    constexpr size_t kMost = 40;
    if (!comma_.empty() && !point_.empty())
      throw InputError(format("{} has a decimal comma, and {} a decimal point", comma_, point_), path,
                       "use one number format, without thousands separators");
    std::vector<std::string> lines;
    for (size_t i = 0; i < columns_.size(); ++i)
      if (is_wrong(i)) lines.push_back((is_label(i) ? "the label " : "") + columns_[i].described());
    if (lines.empty()) return;
    const auto count = lines.size();
    if (count > kMost) lines.resize(kMost), lines.push_back(format("and {} more", count - kMost));
    throw InputError(format("{} with cells that are not numbers: {}",
                            base::counted(static_cast<long long>(count), "column"), base::join(lines, "; ")),
                     first_.empty() ? path : first_, hint());
  }

  /// Columns with missing cells, and their number.
  std::vector<std::pair<std::string, int64_t>> missing() const {
    std::vector<std::pair<std::string, int64_t>> list;
    for (const auto& column : columns_)
      if (column.missing > 0) list.emplace_back(column.name, column.missing);
    return list;
  }

 private:
  static constexpr size_t kExamples = 3;

  struct Column {
    std::string name;
    int64_t missing = 0, endless = 0, texts = 0;
    std::set<std::string> some = {};  // of the texts, one more than the examples

    std::string described() const {
      std::vector<std::string> parts, examples;
      if (missing > 0) parts.push_back(format("{} missing", missing));
      if (endless > 0) parts.push_back(format("{} not finite", endless));
      for (const auto& text : some) examples.push_back(examples.size() < kExamples ? text : "...");
      if (texts > 0) parts.push_back(format("{} with text ({})", texts, base::join(examples, ", ")));
      return base::printable(name, kLongestName) + " has " + base::join(parts, ", ");
    }
  };

  std::optional<double> number_of(std::string_view text) {
    auto value = as_number(text);
    if (value && point_.empty() && text.find('.') != std::string_view::npos) point_ = text;
    if (value) return value;
    const auto lower = data::lower_case(text);
    if (lower == "true" || lower == "false") return lower == "true";
    const auto comma = options_.delimiter == ',' ? std::string::npos : lower.find(',');
    if (comma != std::string::npos) value = as_number(std::string(lower).replace(comma, 1, "."));
    if (value && comma_.empty()) comma_ = text;
    return value;
  }

  void note(size_t column, bool first_row, const Where& where) {
    if (!first_.empty() || !is_wrong(column)) return;
    first_ = where();
    in_first_row_ = first_row;
  }

  bool is_label(size_t column) const { return options_.labelled && column == label(); }

  bool is_wrong(size_t column) const {
    const auto& of = columns_[column];
    const bool allows_missing = options_.missing == MissingValues::drop ||
                                (options_.missing == MissingValues::mean && !is_label(column));
    return of.texts > 0 || of.endless > 0 || (of.missing > 0 && !allows_missing);
  }

  std::string hint() const {
    if (!options_.labelled)
      return "fill in these cells, or remove the rows: predict needs a value in every cell";
    if (in_first_row_) return "if the first line names the columns, set task.header: true";
    std::vector<std::string> texts, parts;
    bool missing = false;
    for (size_t i = 0; i < label(); ++i) {
      missing |= columns_[i].missing > 0;
      if (columns_[i].texts + columns_[i].endless > 0) texts.push_back(columns_[i].name);
    }
    if (!texts.empty())
      parts.push_back(
          format("leave columns out (task.ignore: [{0}]), one-hot encode categories (task.categories: "
                 "[{0}]), or train on text (task.name: text)",
                 base::printable(base::join(texts, ", "), 300)));
    if (missing && options_.missing == MissingValues::refuse)
      parts.push_back(
          "for missing cells, set task.missing to drop (omit the rows) or mean (of the training rows)");
    if (columns_.back().missing > 0 && options_.missing != MissingValues::drop)
      parts.push_back("for missing labels, set task.missing to drop (omit the rows)");
    if (columns_.back().texts > 0)
      parts.push_back("for labels that are names, set task.kind to classification");
    if (parts.empty())
      parts.push_back("write a finite number into each of these cells, or remove their rows");
    return base::join(parts, "; ");
  }

  const CsvOptions& options_;
  std::vector<Column> columns_;
  std::string comma_, point_;  // numbers with one
  std::string first_;          // the place of the first wrong cell
  bool in_first_row_ = false;
};

Columns choose_columns(const std::vector<std::string>& header, const CsvOptions& options,
                       const std::string& where) {
  Columns columns{.count = header.size()};
  std::map<size_t, const char*> roles;
  const auto claim = [&](size_t column, const char* role) {
    const auto [taken, is_new] = roles.emplace(column, role);
    if (!is_new)
      throw InputError(
          format("column '{}' is {} and {}", base::printable(header[column]), taken->second, role), where,
          "remove it from one of them");
  };
  if (options.labelled) {
    auto taken = options.features;
    taken.insert(taken.end(), options.ignore.begin(), options.ignore.end());
    columns.label = data::find_label(options.label, header, options.header, taken, where);
    claim(*columns.label, "the label");
  }
  std::set<size_t> ignored;
  for (const auto& name : options.ignore) ignored.insert(find_column(name, header, options.header, where));
  for (const size_t i : ignored) claim(i, "in task.ignore");
  for (const auto& name : options.features) {
    columns.features.push_back(find_column(name, header, options.header, where));
    claim(columns.features.back(), "in task.features");
  }
  for (size_t i = 0; options.features.empty() && i < header.size(); ++i)
    if (!roles.contains(i)) columns.features.push_back(i);
  if (columns.features.empty())
    throw InputError("the label is the only column", where,
                     ignored.empty() ? "set task.delimiter to the file's" : "remove one from task.ignore");
  columns.categories.resize(columns.features.size());
  for (const auto& name : options.categories) {
    const auto& all = columns.features;
    const auto at = std::find(all.begin(), all.end(), find_column(name, header, options.header, where));
    if (at == all.end())
      throw InputError(format("column '{}' in task.categories is not a feature", base::printable(name)),
                       where,
                       "remove it there, or make it a feature with task.features, task.ignore or task.label");
    columns.categories[at - all.begin()] = true;
  }
  std::map<std::string_view, int> count;
  for (const auto& name : header) ++count[name];
  const auto name_of = [&](size_t i) {
    if (options.header && count[header[i]] > 1)
      throw InputError(format("two columns are called '{}'", base::printable(header[i])), where,
                       "rename one, or leave both out of task.features");
    return header[i];
  };
  for (const size_t i : columns.features) columns.names.push_back(name_of(i));
  if (!columns.label) return columns;
  columns.label_name = name_of(*columns.label);
  columns.label_key = data::column_key(header, options.header, *columns.label);
  return columns;
}

struct Extent {
  int64_t lines = 0;  // of data; a row has several if its quotes contain line ends
  int64_t bytes = 0;  // of all lines, with their ends
};

Extent extent_of(const std::string& path, bool header) {
  data::LineReader lines(path);
  std::string_view line;
  Extent extent{.lines = header ? -1 : 0};
  for (; lines.next(line); ++extent.lines) extent.bytes += static_cast<int64_t>(line.size()) + 1;
  if (extent.lines <= 0)
    throw InputError(extent.lines < 0 ? "the file is empty" : "the file has no rows of data", path,
                     header && extent.lines == 0
                         ? "add rows below the header, or set task.header: false if the first line is data"
                         : "add rows, or copy the file again");
  return extent;
}

std::unique_ptr<data::TextRows> open_file(const std::string& path, const CsvOptions& options) {
  if (data::is_array_file(path)) return std::make_unique<data::ArrayRows>(path);
  return data::open_table(path, {.delimiter = options.delimiter, .header = options.header});
}

/// A field has at least one byte. If the first line promises more fields than the file can have, a row is too
/// short: finds it before there is memory for them all.
void check_room(const std::string& path, const Extent& extent, const CsvOptions& options,
                const Columns& columns) {
  if (static_cast<int64_t>(columns.count) <= (extent.bytes + extent.lines) / extent.lines) return;
  const auto rows = data::open_table(path, {.delimiter = options.delimiter, .header = options.header});
  std::vector<std::string_view> fields;
  while (rows->next(fields)) continue;
}

bool is_id(const at::Tensor& column) {
  return column.equal(column.floor()) && std::get<0>(at::_unique(column)).numel() == column.numel();
}

/// Features with a different whole number in every row. The first rows exclude most columns.
std::vector<std::string> ids_in(const CsvTable& table) {
  constexpr int64_t kFewestRows = 20, kSample = 1000;
  const auto rows = table.features.size(0);
  const auto names = table.feature_names();
  std::vector<std::string> ids;
  for (size_t i = 0; rows >= kFewestRows && i < names.size(); ++i) {
    const auto column = table.features.select(1, static_cast<int64_t>(i));
    if (is_id(column.narrow(0, 0, std::min(kSample, rows))) && is_id(column)) ids.push_back(names[i]);
  }
  return ids;
}

/// The values of each category in order.
std::vector<std::vector<std::string>> values_in(const std::string& path, const CsvOptions& options,
                                                const Columns& columns) {
  std::vector<std::vector<std::string>> values(columns.features.size());
  if (options.categories.empty()) return values;
  std::vector<data::Labels> found;
  for (const auto& name : columns.names) found.emplace_back(0, std::vector<std::string>(), name);
  const auto rows = open_file(path, options);
  if (auto* const numbers = dynamic_cast<data::ArrayRows*>(rows.get()))
    for (const size_t i : columns.features) numbers->read_as_text(i);
  const Where where = [&rows] { return rows->where(); };
  std::vector<std::string_view> fields;
  while (rows->next(fields))
    for (size_t c = 0; c < found.size(); ++c)
      if (const auto& field = fields[columns.features[c]];
          columns.categories[c] && !is_missing_class(trimmed(field), options.missing))
        found[c].number(field, where);
  std::vector<int64_t> place;
  for (size_t c = 0; c < found.size(); ++c) values[c] = found[c].sorted(place);
  return values;
}

}  // namespace

std::vector<std::string> CsvTable::feature_names() const {
  std::vector<std::string> names;
  for (size_t c = 0; c < columns.size(); ++c) {
    if (values[c].empty()) names.push_back(columns[c]);
    for (const auto& value : values[c]) names.push_back(columns[c] + "=" + value);
  }
  return names;
}

char find_delimiter(const std::string& path) {
  for (const char delimiter : {';', '\t'}) {
    try {
      std::vector<std::string_view> fields;
      const auto rows = data::open_table(path, {.delimiter = delimiter});
      if (rows->columns().size() > 1 && rows->next(fields)) return delimiter;
    } catch (const InputError&) {  // the rows differ, or cannot be read
    }
  }
  return ',';
}

std::vector<std::string> first_csv_line(const std::string& path, char delimiter) {
  return open_file(path, {.delimiter = delimiter})->columns();
}

CsvTable read_csv(const std::string& path, const CsvOptions& options, Arena& arena) {
  auto extent = data::is_array_file(path) ? Extent() : extent_of(path, options.header);
  const auto rows = open_file(path, options);
  const auto columns = choose_columns(rows->columns(), options, path);
  auto* const numbers = dynamic_cast<data::ArrayRows*>(rows.get());
  numbers ? void(extent.lines = numbers->size()) : check_room(path, extent, options, columns);
  CsvTable table;
  table.columns = columns.names;
  table.label = columns.label_key;
  if (columns.label) table.label_column = static_cast<int64_t>(*columns.label);
  table.values = options.values.empty() ? values_in(path, options, columns) : options.values;
  const auto width = static_cast<int64_t>(table.feature_names().size());
  table.features = arena.empty({extent.lines, width}, at::kFloat);
  const bool classes = columns.label && !options.numbers;
  if (classes) table.labels = arena.empty({extent.lines}, at::kLong);
  if (columns.label && options.numbers) table.labels = arena.empty({extent.lines, 1}, at::kFloat);
  float* out = table.features.mutable_data_ptr<float>();
  int64_t* label = classes ? table.labels.mutable_data_ptr<int64_t>() : nullptr;
  float* number = columns.label && !classes ? table.labels.mutable_data_ptr<float>() : nullptr;

  Cells cells(columns, options);
  data::Labels labels(options.classes, options.class_names);
  std::vector<data::Labels> categories;
  for (size_t c = 0; c < columns.names.size(); ++c)
    categories.emplace_back(0, table.values[c], columns.names[c]);
  if (numbers && label) numbers->read_as_text(*columns.label);
  for (size_t c = 0; numbers && c < columns.features.size(); ++c)
    if (!table.values[c].empty()) numbers->read_as_text(columns.features[c]);
  const Where where = [&rows] { return rows->where(); };
  std::vector<std::string_view> fields;
  const auto number_in = [&](size_t c, size_t column, bool first) {
    if (!numbers || numbers->is_text(column)) return cells.number(c, fields[column], first, where);
    const auto value = numbers->number(column);
    if (std::isfinite(value)) return value;
    return cells.number(c, std::isnan(value) ? "nan" : "inf", false, where);
  };
  int64_t kept = 0, read = 0;
  for (; rows->next(fields); ++read) {
    if (read == extent.lines)
      throw InputError("the file grew while it was read", path,
                       "start again when no other program writes to it");
    const bool first = read == 0 && !options.header;
    bool whole = true;
    float* const begin = out;
    for (size_t c = 0; c < columns.features.size(); ++c) {
      const auto& field = fields[columns.features[c]];
      if (const size_t width = table.values[c].size()) {
        const bool known = cells.has_class(c, field, where);
        std::fill_n(out, width, known ? 0 : std::numeric_limits<float>::quiet_NaN());
        if (known) out[categories[c].number(field, where)] = 1;
        whole = known && whole;
        out += width;
      } else {
        *out = number_in(c, columns.features[c], first);
        whole = !std::isnan(*out++) && whole;
      }
    }
    bool known = true;
    if (number) {
      number[kept] = number_in(cells.label(), *columns.label, first);
      known = !std::isnan(number[kept]);
    } else if (label) {
      known = cells.has_class(cells.label(), fields[*columns.label], where);
    }
    if (options.missing == MissingValues::drop && !(whole && known)) {
      out = begin;
      continue;
    }
    if (label && known) label[kept] = labels.number(fields[*columns.label], where);
    ++kept;
  }
  cells.check(path);
  if (kept == 0)
    throw InputError("every row has an empty cell, so none is left", path,
                     "leave columns out with task.ignore, or set task.missing: mean");
  table.features = table.features.narrow(0, 0, kept);
  if (table.labels.defined()) table.labels = table.labels.narrow(0, 0, kept);
  table.missing = cells.missing();
  table.decimal_commas = cells.decimal_commas();
  table.dropped = read - kept;
  if (options.features.empty()) table.ids = ids_in(table);
  if (number) table.class_names = {columns.label_name};
  if (!label) return table;
  if (options.check_labels) labels.check_classes(kept, columns.label_name, path);
  std::vector<int64_t> place;
  table.class_names = labels.sorted(place);
  std::transform(label, label + kept, label, [&](int64_t number) { return place[number]; });
  return table;
}

}  // namespace lockstep
