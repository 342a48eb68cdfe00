#include "lockstep/data/cells.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::data {
namespace {

constexpr size_t kLongestName = 40;
constexpr size_t kMostLines = 40;  // columns
constexpr std::array<std::string_view, 4> kNoValue = {"na", "n/a", "#n/a", "<na>"};
constexpr std::array<std::string_view, 4> kNoNumber = {"nan", "null", "none", "?"};

template <size_t N>
bool holds(const std::array<std::string_view, N>& words, std::string_view text) {
  return std::find(words.begin(), words.end(), lower_case(text)) != words.end();
}

bool is_nan(std::string_view text) {
  const auto value = as_number(text);
  return value && std::isnan(*value);
}

std::string listed(const std::vector<std::string>& names) {
  return base::printable(base::join(names, ", "), 300);
}

}  // namespace

bool is_missing(std::string_view text) {
  return text.empty() || holds(kNoValue, text) || holds(kNoNumber, text) || is_nan(text);
}

bool is_missing_class(std::string_view text, Missing rule) {
  return text.empty() || is_nan(text) || (rule == Missing::drop && holds(kNoValue, text));
}

Cells::Cells(const std::vector<std::string>& features, const std::optional<std::string>& label,
             const CsvOptions& options)
    : has_label_(label),
      guesses_label_(label && options.label.empty() && !is_called_label(*label)),
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
  if (!is_missing_class(trimmed(field), rule_)) return true;
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
    number_at(first_->field, name, first_->in_first_row, [this] { return first_->where; });
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

}  // namespace lockstep::data
