#pragma once
// Tables of numbers with a class column, read in two passes: memory for the numbers alone, errors at
// file:line.

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/data/node_share.h"

namespace lockstep {

/// What becomes of a row with a cell that has no value.
enum class Missing {
  refuse,  ///< an error
  drop,    ///< it is left out
  mean,    ///< the cell is NaN, and the caller puts something in its place; a label has to be there
};

/// What a file looks like.
struct CsvOptions {
  char delimiter = ',';
  bool header = true;
  bool labelled = true;
  bool numbers = false;                    // the labels are numbers, not classes
  std::string label = {};                  // column by name or index, -1 = the last; empty = find_label()'s
  std::vector<std::string> features = {};  // columns by name or index; empty = every other
  std::vector<std::string> ignore = {};    // columns that are no features, by name or index
  Missing missing = Missing::refuse;
  int64_t classes = 0;  // labels are 0 to classes - 1; 0 = whatever distinct labels there are
  std::vector<std::string> class_names =
      {};  // the labels that may come, where they are known (an evaluation set)
};

/// What a file held.
struct CsvTable {
  at::Tensor features;                   // float [rows, columns]
  at::Tensor labels;                     // int64 [rows], or float [rows, 1]; undefined where not labelled
  std::vector<std::string> columns;      // the features' names, or their indices
  std::vector<std::string> class_names;  // in the order of their numbers; of numbers the column's name
  std::string label = {};                // what CsvOptions calls the column that the labels are from
  int64_t label_column = -1;             // its index; -1 where not labelled
  int64_t dropped = 0;                   // rows that were left out
  std::vector<std::pair<std::string, int64_t>> missing = {};  // columns with cells without a value: how many
  std::vector<std::string> ids =
      {};  // features with another whole number in every row, where none were chosen
};

/// Throws InputError for rows of unequal length, text or no finite number where a number belongs (one error
/// for all columns), two columns of one name, classes that look like measured numbers or are about as many as
/// rows, no rows at all.
CsvTable read_csv(const std::string& path, const CsvOptions& options, Arena& arena);

/// The fields of the file's first line; throws where there is none.
std::vector<std::string> first_csv_line(const std::string& path, char delimiter);

namespace data {

/// Does a class's name mean that there is none? A class may be called None; NA is a class unless rows without
/// one are left out.
bool is_missing_class(std::string_view text, Missing rule);

}  // namespace data

}  // namespace lockstep
