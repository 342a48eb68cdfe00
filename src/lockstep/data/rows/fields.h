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

/// "file:line", for an error message.
using Where = std::function<std::string()>;

/// The text without surrounding blanks.
std::string_view trimmed(std::string_view text);

/// The number, or infinity if it is out of range; nullopt if the text is not a number.
std::optional<double> as_number(std::string_view text);

/// A finite number that a float can hold; throws InputError for anything else.
float number_at(std::string_view field, const std::string& column, const Where& where);

/// The index of a column, given by name if the columns are `named`, or by index. Throws InputError with the
/// nearest name if there is none.
size_t find_column(const std::string& wanted, const std::vector<std::string>& header, bool named,
                   const std::string& where);

using base::lower_case;

/// Whether the name is label, target or class, in any case.
bool is_label_name(std::string_view name);

/// The label's column, by name or index, -1 = the last. If `wanted` is empty: the column named label, target
/// or class that is not in `taken` (names or indices), else the last. Throws InputError if two have such a
/// name and neither is the last.
size_t find_label(const std::string& wanted, const std::vector<std::string>& header, bool named,
                  const std::vector<std::string>& taken, const std::string& where);

/// The key of a column for find_column(): its name if no other column has it, else its index.
std::string column_key(const std::vector<std::string>& header, bool named, size_t column);

/// Numbers labels, or the values of a column, in order of appearance; sorted() renumbers them in order.
class Labels {
 public:
  /// Allowed are `names`, else 0 to `classes` - 1, else (0) any. `column`: the column, if not the label's.
  explicit Labels(int64_t classes = 0, std::vector<std::string> names = {}, const std::string& column = {});

  int64_t number(std::string_view text, const Where& where);
  /// The names by number.
  const std::vector<std::string>& names() const { return names_; }
  /// Throws InputError for measurements and free text, where each row would be a class.
  void check_classes(int64_t rows, const std::string& column, const std::string& path) const;
  /// The classes in order (as numbers if all are numbers), and the new number for each old one.
  std::vector<std::string> sorted(std::vector<int64_t>& place) const;

 private:
  std::map<std::string, int64_t>::iterator add(const std::string& name, const Where& where);

  std::string subject_;  // for messages
  bool training_;        // whether the names come from a training set
  size_t most_;
  std::vector<std::string> names_;
  std::map<std::string, int64_t> numbers_;
  bool open_ = true;  // whether new classes are allowed
  std::string last_ = "\n";
  int64_t last_number_ = 0;
};

}  // namespace lockstep::data
