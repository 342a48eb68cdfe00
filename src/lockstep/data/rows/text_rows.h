#pragma once
// Files of texts, row by row in bounded memory: CSV, TSV, JSON Lines, or a sample a line; gzip understood.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::data {

/// How a file of texts is laid out.
struct TextLayout {
  enum class Kind {
    table,  ///< columns between delimiters
    json,   ///< an object a line
    lines,  ///< a text a line, or two with a tab between them
  };
  Kind kind = Kind::table;
  char delimiter = ',';
  bool quotes = true;        ///< "a ""b""", line ends among it; without, a quote is a character like another
  bool header = true;        ///< the first line of a table names the columns
  bool short_rows = false;   ///< a row of a table may lack its last columns
  size_t texts_in_line = 1;  ///< of lines: 1 or 2
};

/// What a file's name says: .csv, .tsv, .txt, .jsonl, .json, each with or without .gz. Any other is a CSV. A
/// delimiter that is not a comma stands for itself, in a table with quotes.
TextLayout layout_of(const std::string& path, char delimiter);

/// Does the name say that the file has columns? .txt may be anything.
bool names_columns(const std::string& path);

/// One pass over a file.
class TextRows {
 public:
  virtual ~TextRows() = default;
  /// The columns' names in the file's order, or their indices; of JSON Lines the first object's keys.
  const std::vector<std::string>& columns() const { return columns_; }
  /// Whether those are names.
  bool named() const { return named_; }
  /// What next() gives: these columns, by name or index; all of a table's without this call. InputError where
  /// there is none of that name.
  void choose(const std::vector<std::string>& wanted);
  /// The next row's chosen fields, valid until the next call; false at the end of the file. InputError for a
  /// row that is none.
  virtual bool next(std::vector<std::string_view>& fields) = 0;
  /// "file:line" of the row's first line.
  virtual std::string where() const = 0;
  /// That line's number, from 1.
  virtual int64_t line() const = 0;

 protected:
  explicit TextRows(std::string path) : path_(std::move(path)) {}
  virtual void take(std::vector<size_t> chosen) = 0;

  std::string path_;
  std::vector<std::string> columns_;
  bool named_ = true;
};

/// InputError where the file cannot be read or holds nothing.
std::unique_ptr<TextRows> open_rows(const std::string& path, const TextLayout& layout);

std::unique_ptr<TextRows> open_table(const std::string& path, const TextLayout& layout);
std::unique_ptr<TextRows> open_json(const std::string& path);

}  // namespace lockstep::data
