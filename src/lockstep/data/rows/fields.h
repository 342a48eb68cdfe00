#pragma once
// What is in one field of a row: a number, or a column's name.

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

/// "file:line", asked for where something is wrong.
using Where = std::function<std::string()>;

/// Without blanks around it.
std::string_view trimmed(std::string_view text);

/// Infinite where it is out of range; nothing for what is no number.
std::optional<double> as_number(std::string_view text);

/// A finite number that a float holds; InputError for anything else. `first_row` where the line may be a
/// header.
float number_at(std::string_view field, const std::string& column, bool first_row, const Where& where);

/// The place of a column by its name, where the columns are `named`, or by its index. InputError where there
/// is none, with the nearest name.
size_t find_column(const std::string& wanted, const std::vector<std::string>& header, bool named,
                   const std::string& where);

/// With ASCII's capitals made small, whatever the locale.
std::string lower_case(std::string_view text);

/// Is this label, target or class, in any case?
bool is_called_label(std::string_view name);

/// InputError for a name of more than 4,096 bytes: every rank, the checkpoint and predict keep copies of it.
void check_name_lengths(const std::vector<std::string>& header, const std::string& where);

/// The label's column: by name or index, -1 = the last. Where nothing is `wanted`, the one called label,
/// target or class in any case, `taken` (by name or index) aside, else the last. InputError where two are
/// called so and neither is the last.
size_t find_label(const std::string& wanted, const std::vector<std::string>& header, bool named,
                  const std::vector<std::string>& taken, const std::string& where);

/// What find_column() finds that column by: its name where it has one of its own, else its index.
std::string column_key(const std::vector<std::string>& header, bool named, size_t column);

}  // namespace lockstep::data
