#pragma once
// Reads tables of numbers with a column of labels, in passes, so that only the numbers are in memory.

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
  bool numbers = false;                      // labels are numbers (regression), not classes
  std::string label = {};                    // column by name or index, -1 = the last; empty = automatic
  std::vector<std::string> features = {};    // columns by name or index; empty = all others
  std::vector<std::string> ignore = {};      // columns to leave out, by name or index
  std::vector<std::string> categories = {};  // features that become a column of 0 and 1 per value (one-hot)
  std::vector<std::vector<std::string>> values = {};  // the known values of each feature, as in CsvTable
  MissingValues missing = MissingValues::refuse;
  int64_t classes = 0;                        // labels are 0 to classes - 1; 0 = not limited
  std::vector<std::string> class_names = {};  // the allowed labels if known, as for an evaluation set
  bool check_labels = true;                   // reject labels that look like measurements or free text
};

/// The content of a file.
struct CsvTable {
  at::Tensor features = {};                      // float [rows, columns]; a category has one column per value
  at::Tensor labels = {};                        // int64 [rows], or float [rows, 1]; undefined without labels
  std::vector<std::string> columns;              // names of the features, or their indices
  std::vector<std::vector<std::string>> values;  // the values of each category; empty for a number
  std::vector<std::string> class_names = {};     // by class index; for a regression, the column's name
  std::string label = {};                        // the column of the labels, for CsvOptions::label
  int64_t label_column = -1;                     // its index; -1 without labels
  int64_t dropped = 0;                           // number of dropped rows
  std::vector<std::pair<std::string, int64_t>> missing = {};  // columns with empty cells, and how many
  std::vector<std::string> ids = {};  // features with a different whole number in every row, like an id
  bool decimal_commas = false;

  /// The names of the columns of `features`: "age", "sex=female", "sex=male".
  std::vector<std::string> feature_names() const;
};

/// Reads a CSV, or a file of arrays (npy.h). True and False become 1 and 0, and decimal commas if the
/// delimiter is not a comma. Throws InputError for rows of unequal length, cells that are not finite numbers
/// (one error for all columns), two columns with the same name, labels that look like measurements or free
/// text, or a file without rows.
CsvTable read_csv(const std::string& path, const CsvOptions& options, Arena& arena);

/// Returns `;` or a tab if it splits the first two rows into equally many fields, else a comma.
char find_delimiter(const std::string& path);

/// Returns the fields of the file's first line. Throws InputError if there is none.
std::vector<std::string> first_csv_line(const std::string& path, char delimiter);

}  // namespace lockstep
