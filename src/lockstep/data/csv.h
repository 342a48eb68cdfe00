#pragma once
// Tables of numbers with a class column, read in several passes: in memory are only the numbers.

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/data/node_share.h"

namespace lockstep {

/// How to treat a row with an empty cell.
enum class MissingValues {
  refuse,  ///< an error
  drop,    ///< the row is left out
  mean,    ///< the cell is NaN, and the caller replaces it; an empty label is an error
};
/// Deprecated.
using Missing [[deprecated("use MissingValues")]] = MissingValues;

/// The layout of a file, and the columns to read.
struct CsvOptions {
  char delimiter = ',';
  bool header = true;
  bool labelled = true;
  bool numbers = false;                      // the labels are numbers, not classes
  std::string label = {};                    // column by name or index, -1 = the last; empty = find_label()'s
  std::vector<std::string> features = {};    // columns by name or index; empty = every other
  std::vector<std::string> ignore = {};      // columns that are no features, by name or index
  std::vector<std::string> categories = {};  // features that become a column of 0 and 1 per value (one-hot)
  std::vector<std::vector<std::string>> values = {};  // if known: of each feature, CsvTable's
  MissingValues missing = MissingValues::refuse;
  int64_t classes = 0;                        // labels are 0 to classes - 1; 0 = any
  std::vector<std::string> class_names = {};  // the allowed labels, if they are known (an evaluation set)
};

/// The content of a file.
struct CsvTable {
  at::Tensor features = {};          // float [rows, columns, each category with one per value]
  at::Tensor labels = {};            // int64 [rows], or float [rows, 1]; undefined where not labelled
  std::vector<std::string> columns;  // the features' names, or their indices
  std::vector<std::vector<std::string>> values;  // of each feature that is a category; empty for a number
  std::vector<std::string> class_names = {};  // in the order of their numbers; of numbers the column's name
  std::string label = {};                     // the column of the labels, for CsvOptions::label
  int64_t label_column = -1;                  // its index; -1 where not labelled
  int64_t dropped = 0;                        // rows that were left out
  std::vector<std::pair<std::string, int64_t>> missing = {};  // columns with empty cells, and their number
  std::vector<std::string> ids = {};  // features with a different whole number in every row, like an id
  bool decimal_commas = false;

  /// Of the columns of `features`: "age", "sex=female", "sex=male".
  std::vector<std::string> feature_names() const;
};

/// True and False are 1 and 0. Numbers may have decimal commas if the delimiter is not a comma.
/// InputError for rows of unequal length, cells without a finite number where one belongs (one error for all
/// columns), two columns with the same name, classes that look like measured numbers or are about as many as
/// the rows, or no rows.
CsvTable read_csv(const std::string& path, const CsvOptions& options, Arena& arena);

/// A `;` or a tab if the first two rows consist of as many fields between them, else a comma.
char find_delimiter(const std::string& path);

/// The fields of the file's first line. InputError if there is none.
std::vector<std::string> first_csv_line(const std::string& path, char delimiter);

}  // namespace lockstep
