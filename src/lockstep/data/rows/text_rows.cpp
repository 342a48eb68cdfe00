#include "lockstep/data/rows/text_rows.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <map>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "lockstep/data/rows/fields.h"
#include "lockstep/data/rows/line_reader.h"

namespace lockstep::data {

// CSV (RFC 4180, line ends inside of quotes too) and TSV.

namespace {

constexpr size_t kMostFields = 1 << 20;
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
    chosen_.resize(row_.size());
    std::iota(chosen_.begin(), chosen_.end(), size_t{0});
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

// JSON Lines: an object a line, whose texts, numbers and truths are fields.

namespace {

/// What a line's parser finds: of the object itself, not of what lies in it.
class Fields : public nlohmann::json_sax<nlohmann::json> {
 public:
  enum class State { missing, taken, null, nested };
  struct Field {
    std::string text;
    State state = State::missing;
  };

  /// Keys that are looked for; none: all are noted.
  std::vector<std::string> wanted;
  std::vector<Field> fields;
  std::vector<std::string> keys;
  std::string error;

  void begin() {
    fields.resize(wanted.size());
    for (auto& field : fields) field.state = State::missing;
    depth_ = 0;
    object_ = false;
  }
  bool is_object() const { return object_; }

  bool null() override { return put(State::null); }
  bool boolean(bool value) override { return put(State::taken, value ? "true" : "false"); }
  bool number_integer(int64_t value) override { return put(State::taken, std::to_string(value)); }
  bool number_unsigned(uint64_t value) override { return put(State::taken, std::to_string(value)); }
  bool number_float(double, const std::string& text) override { return put(State::taken, text); }
  bool string(std::string& text) override {
    if (Field* field = here()) {
      field->state = State::taken;
      field->text.swap(text);
    }
    return true;
  }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool start_object(size_t) override {
    if (depth_ == 0) object_ = true;
    put(State::nested);
    return deeper();
  }
  bool start_array(size_t) override {
    put(State::nested);
    return deeper();
  }
  bool end_object() override { return --depth_, true; }
  bool end_array() override { return --depth_, true; }
  bool key(std::string& name) override {
    if (depth_ != 1) return true;
    if (wanted.empty()) keys.push_back(name);
    at_ = static_cast<size_t>(std::find(wanted.begin(), wanted.end(), name) - wanted.begin());
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& why) override {
    error = base::what_is_wrong(why);
    return false;
  }

 private:
  // A line of brackets alone may be as long as a line.
  bool deeper() {
    if (++depth_ <= base::kDeepestJson) return true;
    error = "brackets in brackets in brackets";
    return false;
  }
  Field* here() { return depth_ == 1 && object_ && at_ < fields.size() ? &fields[at_] : nullptr; }
  bool put(State state, std::string text = {}) {
    if (Field* field = here()) {
      field->state = state;
      field->text = std::move(text);
    }
    return true;
  }

  int depth_ = 0;
  bool object_ = false;
  size_t at_ = 0;
};

class JsonRows : public TextRows {
 public:
  explicit JsonRows(const std::string& path) : TextRows(path), lines_(path) {
    if (!lines_.next(first_)) throw InputError("the file is empty", path, "give a JSON object a line");
    parse(first_);
    columns_ = std::move(found_.keys);
    pending_ = true;
  }

  bool next(std::vector<std::string_view>& fields) override {
    std::string_view line = first_;
    if (!pending_ && !lines_.next(line)) return false;
    pending_ = false;
    parse(line);
    fields.clear();
    for (size_t i = 0; i < found_.wanted.size(); ++i) fields.push_back(field(i));
    return true;
  }
  std::string where() const override { return lines_.where(); }
  int64_t line() const override { return lines_.number(); }

 private:
  void take(std::vector<size_t> chosen) override {
    found_.wanted.clear();
    for (const size_t i : chosen) found_.wanted.push_back(columns_[i]);
  }

  void parse(std::string_view line) {
    found_.begin();
    if (nlohmann::json::sax_parse(line.begin(), line.end(), &found_) && found_.is_object()) return;
    if (found_.error.empty())
      throw InputError("the line is no JSON object", where(),
                       R"(write {"text": "...", "label": "..."}, say)");
    throw InputError("the line is not JSON: " + base::printable(found_.error, 160), where(),
                     "give JSON Lines, an object a line, in UTF-8; a .csv or .tsv is read by its name");
  }

  std::string_view field(size_t i) const {
    const auto& field = found_.fields[i];
    if (field.state == Fields::State::taken) return field.text;
    const auto name = base::printable(found_.wanted[i]);
    if (field.state == Fields::State::missing)
      throw InputError(format("the object has no '{}'", name), where(), "fill it in, or drop the line");
    throw InputError(format("'{}' is {}", name,
                            field.state == Fields::State::null ? "null" : "a list or an object, not a text"),
                     where(), "write a text there, or drop the line");
  }

  LineReader lines_;
  std::string_view first_;  // until the next line is read
  bool pending_ = false;
  Fields found_;
};

}  // namespace

std::unique_ptr<TextRows> open_json(const std::string& path) {
  return std::make_unique<JsonRows>(path);
}

namespace {

constexpr TextLayout kTabs{.delimiter = '\t', .quotes = false};
constexpr TextLayout kJson{.kind = TextLayout::Kind::json};

// What stands behind a name's last point. A TSV has no quotes: it is "text/tab-separated-values" of IANA.
const std::map<std::string, TextLayout> kByName{
    {".csv", {}},      {".tsv", kTabs},    {".tab", kTabs},  {".txt", kTabs},
    {".jsonl", kJson}, {".ndjson", kJson}, {".json", kJson},
};

std::string ending_of(const std::string& name) {
  auto path = lower_case(name);
  if (path.ends_with(".gz")) path.resize(path.size() - 3);
  const auto point = path.find_last_of("./");
  return point == std::string::npos ? "" : path.substr(point);
}

class LineRows : public TextRows {
 public:
  LineRows(const std::string& path, size_t texts) : TextRows(path), lines_(path), texts_(texts) {
    columns_ = texts == 1 ? std::vector<std::string>{"text"} : std::vector<std::string>{"first", "second"};
  }

  bool next(std::vector<std::string_view>& fields) override {
    std::string_view line;
    if (!lines_.next_of_all(line)) return false;
    fields.clear();
    if (texts_ == 2) {
      const auto tab = line.find('\t');
      if (tab == std::string_view::npos)
        throw InputError(
            "a line holds one text where the model takes two", where(),
            "put a tab between the two, or give a CSV, TSV or JSONL file with the task's columns");
      fields.push_back(line.substr(0, tab));
      line.remove_prefix(tab + 1);
    }
    fields.push_back(line);
    return true;
  }
  std::string where() const override { return lines_.where(); }
  int64_t line() const override { return lines_.number(); }

 private:
  void take(std::vector<size_t>) override {}

  LineReader lines_;
  size_t texts_;
};

}  // namespace

TextLayout layout_of(const std::string& path, char delimiter) {
  const auto named = kByName.find(ending_of(path));
  TextLayout layout = named == kByName.end() ? TextLayout{} : named->second;
  if (layout.kind == TextLayout::Kind::table && delimiter != ',') {
    layout.delimiter = delimiter;
    layout.quotes = true;
  }
  return layout;
}

bool names_columns(const std::string& path) {
  const auto ending = ending_of(path);
  return ending != ".txt" && kByName.contains(ending);
}

void TextRows::choose(const std::vector<std::string>& wanted) {
  if (named_) check_name_lengths(columns_, path_);
  std::vector<size_t> chosen;
  for (const auto& name : wanted) {
    chosen.push_back(find_column(name, columns_, named_, path_));
    if (std::count(columns_.begin(), columns_.end(), columns_[chosen.back()]) > 1)
      throw InputError(format("two columns are called '{}'", base::printable(name)), path_,
                       "give each column a name of its own");
  }
  take(std::move(chosen));
}

std::unique_ptr<TextRows> open_rows(const std::string& path, const TextLayout& layout) {
  switch (layout.kind) {
    case TextLayout::Kind::table:
      return open_table(path, layout);
    case TextLayout::Kind::json:
      return open_json(path);
    case TextLayout::Kind::lines:
      break;
  }
  return std::make_unique<LineRows>(path, layout.texts_in_line);
}

}  // namespace lockstep::data
