#pragma once
// What is in one field of a row: a number, or a column's name.

#include <cstdint>
#include <functional>
#include <map>
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

/// The label's column: by name or index, -1 = the last. Where nothing is `wanted`, the one called label,
/// target or class in any case, `taken` (by name or index) aside, else the last. InputError where two are
/// called so and neither is the last.
size_t find_label(const std::string& wanted, const std::vector<std::string>& header, bool named,
                  const std::vector<std::string>& taken, const std::string& where);

/// What find_column() finds that column by: its name where it has one of its own, else its index.
std::string column_key(const std::vector<std::string>& header, bool named, size_t column);

// Labels to numbers: which classes there are, and which one a row has.

/// Numbers the labels as they come; sorted() then gives each its place in the order of the classes.
class Labels {
 public:
  /// Those that may come, where they are known: `names`, else 0 to `classes` - 1, else (0) any.
  explicit Labels(int64_t classes = 0, std::vector<std::string> names = {});

  int64_t number(std::string_view text, const Where& where);
  /// So far, in the order of their numbers.
  const std::vector<std::string>& names() const { return names_; }
  /// InputError for measured numbers and for texts: each would become a class of its own.
  void check_classes(int64_t rows, const std::string& column, const std::string& path) const;
  /// The classes in order (as numbers where all are numbers), and what each number so far becomes.
  std::vector<std::string> sorted(std::vector<int64_t>& place) const;

 private:
  std::map<std::string, int64_t>::iterator add(const std::string& name, const Where& where);

  bool training_;  // the names are those of a training set
  std::vector<std::string> names_;
  std::map<std::string, int64_t> numbers_;
  bool open_ = true;  // new classes may come
  std::string last_ = "\n";
  int64_t last_number_ = 0;
};

}  // namespace lockstep::data
