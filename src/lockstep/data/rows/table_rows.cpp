// CSV (RFC 4180, line ends inside of quotes too) and TSV.
#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/data/rows/fields.h"
#include "lockstep/data/rows/line_reader.h"
#include "lockstep/data/rows/text_rows.h"

namespace lockstep::data {
namespace {

constexpr size_t kMostFields = 1 << 16;
constexpr size_t kLargestRow = size_t{64} << 20;

/// Cuts lines into a row's fields; a row goes on in the next line where a quote is open.
class Row {
 public:
  void begin() {
    bytes_.clear();
    ends_.clear();
    in_quotes_ = false;
  }
  bool open() const { return in_quotes_; }
  size_t size() const { return ends_.size(); }
  std::string_view field(size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(bytes_).substr(begin, ends_[i] - begin);
  }
  void add_plain(std::string_view line, char delimiter, const Where& where);
  void add_quoted(std::string_view line, char delimiter, const Where& where);

 private:
  void end_field(const Where& where);
  size_t through_quotes(std::string_view line, size_t at);

  std::string bytes_;
  std::vector<size_t> ends_;
  bool in_quotes_ = false;
};

void Row::add_plain(std::string_view line, char delimiter, const Where& where) {
  for (size_t at = 0;;) {
    const size_t end = std::min(line.find(delimiter, at), line.size());
    bytes_.append(line.substr(at, end - at));
    end_field(where);
    if (end == line.size()) return;
    at = end + 1;
  }
}

void Row::end_field(const Where& where) {
  if (ends_.size() == kMostFields)
    throw InputError(format("more than {} fields in a row", kMostFields), where(),
                     "is task.delimiter the file's?");
  ends_.push_back(bytes_.size());
}

// From inside of quotes to behind the closing one, or to the line's end.
size_t Row::through_quotes(std::string_view line, size_t at) {
  for (;;) {
    const size_t quote = std::min(line.find('"', at), line.size());
    bytes_.append(line.substr(at, quote - at));
    if (quote == line.size()) {
      bytes_ += '\n';
      return quote;
    }
    at = quote + 1;
    if (at >= line.size() || line[at] != '"') {
      in_quotes_ = false;
      return at;
    }
    bytes_ += '"';
    ++at;
  }
}

void Row::add_quoted(std::string_view line, char delimiter, const Where& where) {
  for (size_t at = 0;; ++at) {
    const size_t text = line.find_first_not_of(' ', at);
    if (!in_quotes_ && text != std::string_view::npos && line[text] == '"') {
      in_quotes_ = true;
      at = text + 1;
    }
    if (in_quotes_) {
      at = through_quotes(line, at);
      if (in_quotes_) return;
      at = std::min(line.find_first_not_of(' ', at), line.size());
      if (at < line.size() && line[at] != delimiter)
        throw InputError(format("something stands between a closing quote and the next '{}'", delimiter),
                         where(), R"(put the whole field in quotes; a quote inside of quotes is written "")");
    } else {
      const size_t end = std::min(line.find(delimiter, at), line.size());
      bytes_.append(line.substr(at, end - at));
      at = end;
    }
    end_field(where);
    if (at >= line.size()) return;
  }
}

class TableRows : public TextRows {
 public:
  TableRows(const std::string& path, const TextLayout& layout)
      : TextRows(path), lines_(path), layout_(layout) {
    if (!read_row())
      throw InputError("the file is empty", path,
                       "give a file with a row a sample, and the names above them");
    named_ = layout.header;
    for (size_t i = 0; i < row_.size(); ++i)
      columns_.push_back(named_ ? std::string(trimmed(row_.field(i))) : format("{}", i));
    pending_ = !named_;
  }

  bool next(std::vector<std::string_view>& fields) override {
    if (!pending_ && !read_row()) return false;
    pending_ = false;
    const bool whole = layout_.short_rows ? row_.size() > last_ : row_.size() == columns_.size();
    if (!whole)
      throw InputError(format("{} field{} where the first line has {}", row_.size(),
                              row_.size() == 1 ? "" : "s", columns_.size()),
                       where(),
                       layout_.quotes ? "fix this row: put a field that holds the delimiter in quotes"
                                      : "fix this row: a tab stands between two fields, and in none of them");
    fields.clear();
    for (const size_t i : chosen_) fields.push_back(row_.field(i));
    return true;
  }
  std::string where() const override { return format("{}:{}", path_, first_line_); }
  int64_t line() const override { return first_line_; }

 private:
  void take(std::vector<size_t> chosen) override {
    chosen_ = std::move(chosen);
    last_ = chosen_.empty() ? 0 : *std::max_element(chosen_.begin(), chosen_.end());
  }

  bool read_row() {
    std::string_view line;
    if (!lines_.next(line)) return false;
    first_line_ = lines_.number();
    row_.begin();
    const Where where = [this] { return this->where(); };
    if (!layout_.quotes) {
      row_.add_plain(line, layout_.delimiter, where);
      return true;
    }
    row_.add_quoted(line, layout_.delimiter, where);
    size_t bytes = line.size();
    while (row_.open()) {
      if (!lines_.next_of_all(line) || (bytes += line.size() + 1) > kLargestRow)
        throw InputError("a quote that begins here does not end", where(),
                         R"(close it; a quote inside of quotes is written "")");
      row_.add_quoted(line, layout_.delimiter, where);
    }
    return true;
  }

  LineReader lines_;
  TextLayout layout_;
  Row row_;
  std::vector<size_t> chosen_;
  size_t last_ = 0;
  int64_t first_line_ = 0;
  bool pending_ = false;  // the first row, where no header is above it
};

}  // namespace

std::unique_ptr<TextRows> open_table(const std::string& path, const TextLayout& layout) {
  return std::make_unique<TableRows>(path, layout);
}

}  // namespace lockstep::data
