#include "lockstep/data/csv.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/data/rows/fields.h"
#include "lockstep/data/rows/line_reader.h"
#include "lockstep/data/rows/text_rows.h"

namespace lockstep {
namespace {

using data::as_number, data::find_column, data::trimmed, data::Where;

// What the cells of a table hold where they hold no number: counted by column, and reported in one error.

constexpr size_t kLongestName = 40;
constexpr size_t kMostLines = 40;  // columns
constexpr std::array<std::string_view, 4> kNoValue = {"na", "n/a", "#n/a", "<na>"};
constexpr std::array<std::string_view, 4> kNoNumber = {"nan", "null", "none", "?"};

template <size_t N>
bool holds(const std::array<std::string_view, N>& words, std::string_view text) {
  return std::find(words.begin(), words.end(), data::lower_case(text)) != words.end();
}

bool is_nan(std::string_view text) {
  const auto value = as_number(text);
  return value && std::isnan(*value);
}

std::string listed(const std::vector<std::string>& names) {
  return base::printable(base::join(names, ", "), 300);
}

/// Empty, or one of the words for that: NA, N/A, NaN, null, None, ?.
bool is_missing(std::string_view text) {
  return text.empty() || holds(kNoValue, text) || holds(kNoNumber, text) || is_nan(text);
}

/// The columns of one table, its label last where it has one.
class Cells {
 public:
  Cells(const std::vector<std::string>& features, const std::optional<std::string>& label,
        const CsvOptions& options);

  /// A number that a float holds; of all else NaN, and it is noted.
  float number(size_t column, std::string_view field, bool first_row, const Where& where);
  /// Is there a class? If not it is noted.
  bool has_class(std::string_view field, const Where& where);
  size_t label() const { return columns_.size() - 1; }

  /// InputError for all that the table's rule does not fix.
  void check(const std::string& path) const;
  /// Columns with missing cells, and how many.
  std::vector<std::pair<std::string, int64_t>> missing() const;

 private:
  struct Column {
    std::string name;
    int64_t missing = 0, endless = 0, texts = 0;
    std::set<std::string> some = {};  // of the texts

    bool is_few() const { return some.size() < kFew && texts > static_cast<int64_t>(some.size()); }
    std::string described() const;
  };
  struct First {
    size_t column;
    std::string field, where;
    bool in_first_row;
  };
  static constexpr size_t kFew = 10;

  void note(size_t column, std::string_view field, bool first_row, const Where& where);
  bool is_wrong(size_t column) const;
  [[noreturn]] void refuse_one() const;
  std::string hint(const std::vector<size_t>& wrong) const;

  std::vector<Column> columns_;
  const bool has_label_, guesses_label_, numbers_, header_, labelled_;
  const Missing rule_;
  std::optional<First> first_;
  int64_t noted_ = 0, in_first_row_ = 0;
};

Cells::Cells(const std::vector<std::string>& features, const std::optional<std::string>& label,
             const CsvOptions& options)
    : has_label_(label),
      guesses_label_(label && options.label.empty() && !data::is_called_label(*label)),
      numbers_(options.numbers),
      header_(options.header),
      labelled_(options.labelled),
      rule_(options.missing) {
  for (const auto& name : features) columns_.push_back({.name = name});
  if (label) columns_.push_back({.name = *label});
}

float Cells::number(size_t column, std::string_view field, bool first_row, const Where& where) {
  const auto text = trimmed(field);
  const auto value = as_number(text);
  if (value && std::abs(*value) <= std::numeric_limits<float>::max()) return static_cast<float>(*value);
  auto& of = columns_[column];
  if (is_missing(text)) {
    ++of.missing;
  } else if (value) {
    ++of.endless;
  } else {
    ++of.texts;
    if (of.some.size() < kFew) of.some.insert(base::printable(text, kLongestName));
  }
  note(column, field, first_row, where);
  return std::numeric_limits<float>::quiet_NaN();
}

bool Cells::has_class(std::string_view field, const Where& where) {
  if (!data::is_missing_class(trimmed(field), rule_)) return true;
  ++columns_.back().missing;
  note(label(), field, false, where);
  return false;
}

void Cells::note(size_t column, std::string_view field, bool first_row, const Where& where) {
  ++noted_;
  in_first_row_ += first_row;
  const bool allowed = !is_wrong(column);
  if (!first_ && !allowed) first_ = {column, std::string(field), where(), first_row};
}

// A missing cell alone may be allowed, and of a label only by leaving out its row.
bool Cells::is_wrong(size_t column) const {
  const auto& of = columns_[column];
  if (of.texts > 0 || of.endless > 0) return true;
  const bool allows =
      rule_ == Missing::drop || (rule_ == Missing::mean && !(has_label_ && column == label()));
  return of.missing > 0 && !allows;
}

std::string Cells::Column::described() const {
  std::vector<std::string> parts;
  if (missing > 0) parts.push_back(format("{} missing", missing));
  if (endless > 0) parts.push_back(format("{} not finite", endless));
  if (texts > 0) {
    std::vector<std::string> examples(some.begin(),
                                      std::next(some.begin(), std::min<size_t>(some.size(), 3)));
    parts.push_back(format("{} of text ({}{})", texts, base::join(examples, ", "),
                           some.size() > examples.size() ? ", ..." : ""));
  }
  return base::printable(name, kLongestName) + " " + base::join(parts, ", ");
}

// In the words of a single cell.
void Cells::refuse_one() const {
  const auto& name = columns_[first_->column].name;
  const bool is_class = has_label_ && first_->column == label() && !numbers_;
  if (is_class)
    throw InputError(is_nan(trimmed(first_->field)) ? "the label 'nan' is no class: the label is missing"
                                                    : "the label is missing",
                     first_->where, hint({first_->column}));
  try {
    data::number_at(first_->field, name, first_->in_first_row, [this] { return first_->where; });
  } catch (const InputError& error) {
    const bool names = first_->in_first_row && columns_[first_->column].texts > 0;
    throw InputError(error.what(), error.where(), names ? error.hint() : hint({first_->column}));
  }
  throw Error("a cell that is a number was refused", first_->where, "");
}

std::string Cells::hint(const std::vector<size_t>& wrong) const {
  std::vector<std::string> out, few, parts;
  bool missing = false, missing_label = false, text_label = false;
  for (const size_t i : wrong) {
    const auto& of = columns_[i];
    const bool label_itself = has_label_ && i == label();
    missing |= of.missing > 0 && !label_itself;
    missing_label |= of.missing > 0 && label_itself;
    text_label |= of.texts > 0 && label_itself;
    if (label_itself || of.texts + of.endless == 0) continue;
    if (of.is_few()) {
      few.push_back(format("{} ({})", base::printable(of.name, kLongestName),
                           base::join({of.some.begin(), of.some.end()}, ", ")));
    } else {
      out.push_back(of.name);
    }
  }
  if (!labelled_) return "predict answers every row: fill these cells in, or take the rows out";
  if (guesses_label_ && !(out.empty() && few.empty()))
    parts.push_back(format("the label is taken to be {}, the last column, and task.label names another",
                           base::printable(columns_[label()].name, kLongestName)));
  if (!out.empty())
    parts.push_back(format(
        "task.ignore: [{}] leaves columns out, task.features names those to take, and task.name: text learns "
        "from texts",
        listed(out)));
  if (!few.empty())
    parts.push_back(
        format("give {} a column of 0 and 1 for each value (one-hot), or leave it out (task.ignore)",
               base::join(few, ", ")));
  if (missing && rule_ == Missing::refuse)
    parts.push_back(
        "for missing cells set task.missing: drop leaves their rows out, mean fills in the "
        "training rows' mean");
  if (missing_label)
    parts.push_back(rule_ == Missing::mean
                        ? "task.missing: mean cannot fill in a label: take drop, or fill it in"
                        : "for missing labels set task.missing: drop, which leaves their rows out");
  if (text_label) parts.push_back("task.kind: classification is for labels that are names");
  return base::join(parts, "; ");
}

void Cells::check(const std::string& path) const {
  std::vector<size_t> wrong;
  for (size_t i = 0; i < columns_.size(); ++i)
    if (is_wrong(i)) wrong.push_back(i);
  if (wrong.empty()) return;
  // names where the config promises none
  if (noted_ == 1 || (!header_ && noted_ == in_first_row_)) refuse_one();
  std::vector<std::string> lines;
  for (const size_t i : wrong) {
    if (lines.size() == kMostLines) {
      lines.push_back(format("and {} more", wrong.size() - kMostLines));
      break;
    }
    lines.push_back((has_label_ && i == label() ? "the label " : "") + columns_[i].described());
  }
  throw InputError(format("cells that hold no number, in {} column{}: {}", wrong.size(),
                          wrong.size() == 1 ? "" : "s", base::join(lines, "; ")),
                   first_ ? first_->where : path, hint(wrong));
}

std::vector<std::pair<std::string, int64_t>> Cells::missing() const {
  std::vector<std::pair<std::string, int64_t>> list;
  for (const auto& column : columns_)
    if (column.missing > 0) list.emplace_back(column.name, column.missing);
  return list;
}

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
      throw InputError(format("column '{}' is listed twice in task.features", base::printable(header[i])),
                       where, "remove one of them");
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
  int64_t lines = 0;  // of data; a row whose quotes go on in the next line has several
  int64_t bytes = 0;  // of all lines, with their ends
};

Extent extent_of(const std::string& path, bool header) {
  data::LineReader lines(path);
  std::string_view line;
  Extent extent{.lines = header ? -1 : 0};
  for (; lines.next(line); ++extent.lines) extent.bytes += static_cast<int64_t>(line.size()) + 1;
  if (extent.lines <= 0)
    throw InputError(extent.lines < 0 ? "the file is empty" : "the file has no rows of data", path, kAgain);
  return extent;
}

data::TextLayout layout_of(const CsvOptions& options) {
  return {.delimiter = options.delimiter, .header = options.header};
}

/// A field takes a byte at least. If the first line promises more of them than the file can hold, a row is
/// too short: this looks for it before memory for them all is asked for.
void check_room(const std::string& path, const Extent& extent, const CsvOptions& options,
                const Columns& columns) {
  if (static_cast<int64_t>(columns.count) <= (extent.bytes + extent.lines) / extent.lines) return;
  const auto rows = data::open_table(path, layout_of(options));
  std::vector<std::string_view> fields;
  while (rows->next(fields)) continue;
}

void keep_rows(CsvTable& table, int64_t kept, const std::string& path) {
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
  return data::open_table(path, {.delimiter = delimiter})->columns();
}

CsvTable read_csv(const std::string& path, const CsvOptions& options, Arena& arena) {
  const auto extent = extent_of(path, options.header);
  const auto columns = choose_columns(first_csv_line(path, options.delimiter), options, path);
  check_room(path, extent, options, columns);
  CsvTable table;
  table.columns = columns.names;
  table.label = columns.label_key;
  if (columns.label) table.label_column = static_cast<int64_t>(*columns.label);
  table.features = arena.empty({extent.lines, static_cast<int64_t>(columns.features.size())}, at::kFloat);
  const bool classes = columns.label && !options.numbers;
  if (classes) table.labels = arena.empty({extent.lines}, at::kLong);
  if (columns.label && options.numbers) table.labels = arena.empty({extent.lines, 1}, at::kFloat);
  float* out = table.features.mutable_data_ptr<float>();
  int64_t* label = classes ? table.labels.mutable_data_ptr<int64_t>() : nullptr;
  float* number = columns.label && !classes ? table.labels.mutable_data_ptr<float>() : nullptr;

  Cells cells(columns.names, columns.label ? std::optional(columns.label_name) : std::nullopt, options);
  data::Labels labels(options.classes, options.class_names);
  const auto rows = data::open_table(path, layout_of(options));
  const Where where = [&rows] { return rows->where(); };
  std::vector<std::string_view> fields;
  int64_t kept = 0, read = 0;
  for (; rows->next(fields); ++read) {
    if (read == extent.lines)
      throw InputError("the file became longer while it was read", path,
                       "start again once nothing writes to it");
    const bool first = read == 0 && !options.header;
    bool whole = true;
    float* const begin = out;
    for (size_t c = 0; c < columns.features.size(); ++c) {
      *out = cells.number(c, fields[columns.features[c]], first, where);
      whole = !std::isnan(*out++) && whole;
    }
    bool known = true;
    if (number) {
      number[kept] = cells.number(cells.label(), fields[*columns.label], first, where);
      known = !std::isnan(number[kept]);
    } else if (label) {
      known = cells.has_class(fields[*columns.label], where);
    }
    if (options.missing == Missing::drop && !(whole && known)) {
      out = begin;
      continue;
    }
    if (label && known) label[kept] = labels.number(fields[*columns.label], where);
    ++kept;
  }
  cells.check(path);
  table.missing = cells.missing();
  table.dropped = read - kept;
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

bool data::is_missing_class(std::string_view text, Missing rule) {
  return text.empty() || is_nan(text) || (rule == Missing::drop && holds(kNoValue, text));
}

}  // namespace lockstep
