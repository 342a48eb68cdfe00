#pragma once
// Fields of a row: numbers, columns by name, and labels as classes.

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/text.h"

namespace lockstep::data {

/// "file:line", for an error.
using Where = std::function<std::string()>;

/// Without blanks around it.
std::string_view trimmed(std::string_view text);

/// Infinite if it is out of range; nothing if it is not a number.
std::optional<double> as_number(std::string_view text);

/// A finite number that a float can hold; InputError for anything else.
float number_at(std::string_view field, const std::string& column, const Where& where);

/// The place of a column by its name, if the columns are `named`, or by its index. InputError with the
/// nearest name if there is none.
size_t find_column(const std::string& wanted, const std::vector<std::string>& header, bool named,
                   const std::string& where);

using base::lower_case;

/// Whether this is label, target or class, in any case.
bool is_label_name(std::string_view name);

/// The label's column: by name or index, -1 = the last. If `wanted` is empty, the column called label, target
/// or class that is not among `taken` (by name or index), else the last. InputError if two are called so and
/// neither is the last.
size_t find_label(const std::string& wanted, const std::vector<std::string>& header, bool named,
                  const std::vector<std::string>& taken, const std::string& where);

/// The key of a column for find_column(): its name if no other column has it, else its index.
std::string column_key(const std::vector<std::string>& header, bool named, size_t column);

/// Numbers labels, or a column's values, in order of appearance; sorted() gives each its place in order.
class Labels {
 public:
  /// The allowed ones: `names`, else 0 to `classes` - 1, else (0) any. `column`: of other values.
  explicit Labels(int64_t classes = 0, std::vector<std::string> names = {}, const std::string& column = {});

  int64_t number(std::string_view text, const Where& where);
  /// In the order of their numbers.
  const std::vector<std::string>& names() const { return names_; }
  /// InputError for measured numbers and for texts, where each row would be a class.
  void check_classes(int64_t rows, const std::string& column, const std::string& path) const;
  /// The classes in order (as numbers if all are numbers), and the new number for each old one.
  std::vector<std::string> sorted(std::vector<int64_t>& place) const;

 private:
  std::map<std::string, int64_t>::iterator add(const std::string& name, const Where& where);

  std::string subject_;  // of messages
  bool training_;        // the names are those of a training set
  size_t most_;
  std::vector<std::string> names_;
  std::map<std::string, int64_t> numbers_;
  bool open_ = true;  // new classes may come
  std::string last_ = "\n";
  int64_t last_number_ = 0;
};

}  // namespace lockstep::data
