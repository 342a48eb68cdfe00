#pragma once
// Files of texts, row by row in bounded memory: CSV, TSV, JSON Lines, or one sample per line; gzipped or not.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

/// The layout of a file of texts.
struct TextLayout {
  enum class Kind {
    table,  ///< columns between delimiters
    json,   ///< one object per line
    lines,  ///< one text per line, or two with a tab between them
  };
  Kind kind = Kind::table;
  char delimiter = ',';
  bool quotes = true;        ///< "a ""b""", with line ends inside; without, a quote is an ordinary character
  bool header = true;        ///< the first line of a table names the columns
  bool short_rows = false;   ///< a row of a table may lack its last columns
  size_t texts_in_line = 1;  ///< of lines: 1 or 2
};

/// By the file's name: .csv, .tsv, .txt, .jsonl, .json, each with or without .gz. Any other is a CSV. In a
/// table, a delimiter that is not a comma takes precedence, with quotes.
TextLayout layout_of(const std::string& path, char delimiter);

/// Whether the name says that the file has columns. .txt may be anything.
bool names_columns(const std::string& path);

/// One pass over a file.
class TextRows {
 public:
  virtual ~TextRows() = default;
  /// The columns' names in the file's order, or their indices; of JSON Lines the first object's keys.
  const std::vector<std::string>& columns() const { return columns_; }
  /// Whether those are names.
  bool named() const { return named_; }
  /// Selects the columns for next(), by name or index; without this call it returns all of a table's.
  /// InputError for an unknown column.
  void choose(const std::vector<std::string>& wanted);
  /// The next row's chosen fields, valid until the next call; false at the end of the file. InputError for a
  /// malformed row.
  virtual bool next(std::vector<std::string_view>& fields) = 0;
  /// "file:line" of the row's first line.
  virtual std::string where() const;
  /// That line's number, from 1.
  virtual int64_t line() const = 0;

 protected:
  explicit TextRows(std::string path) : path_(std::move(path)) {}
  /// InputError for a name of more than 4,096 bytes: every rank, checkpoint and prediction has a copy of it.
  void add_column(std::string_view name);

  std::string path_;
  std::vector<std::string> columns_;
  std::vector<size_t> chosen_;
  bool named_ = true;
};

/// InputError for a file that is empty or cannot be read.
std::unique_ptr<TextRows> open_rows(const std::string& path, const TextLayout& layout);

/// The same for a table.
std::unique_ptr<TextRows> open_table(const std::string& path, const TextLayout& layout);

}  // namespace lockstep::data
