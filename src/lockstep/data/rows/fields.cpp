#include "lockstep/data/rows/fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::data {

std::string lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  return lower;
}

bool is_called_label(std::string_view name) {
  const auto lower = lower_case(name);
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
  // Out of range: as good as infinite. (A number too small for a double is out of range too, and is refused
  // as well.)
  return status == std::errc() ? value : std::numeric_limits<double>::infinity();
}

float number_at(std::string_view field, const std::string& column, bool first_row, const Where& where) {
  const auto text = trimmed(field);
  const auto value = as_number(text);
  const char* hint = "every feature must be a finite number: fill or drop what is missing";
  if (text.empty()) throw InputError(format("column {}: missing value", column), where(), hint);
  if (!value) {
    throw InputError(format("column {}: '{}' is not a number", column, base::printable(text, 40)), where(),
                     first_row ? "if this line names the columns, set task.header: true" : hint);
  }
  if (!(std::abs(*value) <= std::numeric_limits<float>::max())) {
    throw InputError(format("column {}: '{}' is not a finite number", column, base::printable(text, 40)),
                     where(), hint);
  }
  return static_cast<float>(*value);
}

void check_name_lengths(const std::vector<std::string>& header, const std::string& where) {
  constexpr size_t kLongestColumn = 4096;
  for (size_t i = 0; i < header.size(); ++i) {
    if (header[i].size() <= kLongestColumn) continue;
    throw InputError(format("the name of column {} has {} bytes", i, header[i].size()), where,
                     format("give it a name of at most {} bytes", kLongestColumn));
  }
}

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
    if (is_called_label(header[i]) && std::find(others.begin(), others.end(), i) == others.end())
      found.push_back(i);
  }
  if (found.empty() || found.back() == last) return last;
  if (found.size() == 1) return found[0];
  throw InputError(format("the label may be column '{}' or '{}'", base::printable(header[found[0]]),
                          base::printable(header[found[1]])),
                   where, "set task.label to the one that is to be learned");
}

std::string column_key(const std::vector<std::string>& header, bool named, size_t column) {
  const auto& name = header[column];
  const bool own = named && !name.empty() && std::count(header.begin(), header.end(), name) == 1;
  return own && !base::invalid_utf8(name) ? name : format("{}", column);
}

}  // namespace lockstep::data
