#pragma once
// What the cells of a table hold where they hold no number: counted column by column, and said in one error.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/csv.h"
#include "lockstep/data/rows/fields.h"

namespace lockstep::data {

/// Empty, or one of the words for that: NA, N/A, NaN, null, None, ?.
bool is_missing(std::string_view text);
/// The same of a class, which may well be called None; NA is one where rows are not to be left out.
bool is_missing_class(std::string_view text, Missing rule);

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

}  // namespace lockstep::data
