#pragma once
// Labels to numbers: which classes there are, and which one a row has.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/rows/fields.h"

namespace lockstep::data {

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
