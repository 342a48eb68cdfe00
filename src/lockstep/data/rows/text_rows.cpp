#include "lockstep/data/rows/text_rows.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "lockstep/data/rows/fields.h"
#include "lockstep/data/rows/line_reader.h"

namespace lockstep::data {
namespace {

constexpr size_t kMostFields = 1 << 20;
constexpr size_t kLargestRow = size_t{64} << 20;
constexpr const char* kQuoteHint = R"(quote the whole field, and write "" for a quote inside of it)";

/// Splits lines into a row's fields. The row continues in the next line while a quote is open.
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

  void add(std::string_view line, const TextLayout& layout, const Where& where) {
    for (size_t at = 0;; ++at) {
      if (layout.quotes && !in_quotes_) {
        const size_t text = line.find_first_not_of(' ', at);
        in_quotes_ = text != std::string_view::npos && line[text] == '"';
        if (in_quotes_) at = text + 1;
      }
      if (in_quotes_) {
        at = through_quotes(line, at);
        if (in_quotes_) return;
        at = std::min(line.find_first_not_of(' ', at), line.size());
        if (at < line.size() && line[at] != layout.delimiter)
          throw InputError(format("text between a closing quote and the next '{}'", layout.delimiter),
                           where(), kQuoteHint);
      } else {
        const size_t end = std::min(line.find(layout.delimiter, at), line.size());
        bytes_.append(line.substr(at, end - at));
        at = end;
      }
      if (ends_.size() == kMostFields)
        throw InputError(format("more than {} fields in a row", kMostFields), where(),
                         "set task.delimiter to the file's");
      ends_.push_back(bytes_.size());
      if (at >= line.size()) return;
    }
  }

 private:
  // Returns the place behind the closing quote, or the end of the line.
  size_t through_quotes(std::string_view line, size_t at) {
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

  std::string bytes_;
  std::vector<size_t> ends_;
  bool in_quotes_ = false;
};

/// CSV (RFC 4180) and TSV.
class TableRows : public TextRows {
 public:
  TableRows(const std::string& path, const TextLayout& layout)
      : TextRows(path), lines_(path), layout_(layout) {
    if (!read_row())
      throw InputError("the file is empty", path, "give a file with one sample per row, and a header");
    named_ = layout.header;
    for (size_t i = 0; i < row_.size(); ++i)
      named_ ? add_column(trimmed(row_.field(i))) : add_column(format("{}", i));
    chosen_.resize(row_.size());
    std::iota(chosen_.begin(), chosen_.end(), size_t{0});
    pending_ = !named_;
  }

  bool next(std::vector<std::string_view>& fields) override {
    if (!pending_ && !read_row()) return false;
    pending_ = false;
    if (!layout_.short_rows && row_.size() != columns_.size()) refuse_row();
    fields.clear();
    for (const size_t i : chosen_) {
      if (i >= row_.size()) refuse_row();
      fields.push_back(row_.field(i));
    }
    return true;
  }
  int64_t line() const override { return first_line_; }

 private:
  [[noreturn]] void refuse_row() const {
    throw InputError(format("this row has {}, but the first line has {}", base::counted(row_.size(), "field"),
                            columns_.size()),
                     where(),
                     layout_.quotes
                         ? "fix this row: put a field that contains the delimiter in quotes"
                         : "fix this row: put one tab between two fields, and none inside of a field");
  }

  bool read_row() {
    std::string_view line;
    if (!lines_.next(line)) return false;
    first_line_ = lines_.number();
    row_.begin();
    const Where where = [this] { return this->where(); };
    row_.add(line, layout_, where);
    size_t bytes = line.size();
    while (row_.open()) {
      if (!lines_.next_or_blank(line) || (bytes += line.size() + 1) > kLargestRow)
        throw InputError("a quote that begins here does not end", where(), kQuoteHint);
      row_.add(line, layout_, where);
    }
    return true;
  }

  LineReader lines_;
  TextLayout layout_;
  Row row_;
  int64_t first_line_ = 0;
  bool pending_ = false;  // the first row, if there is no header
};

/// JSON Lines: one object per line, with texts, numbers and booleans as fields.
class JsonRows : public TextRows, nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonRows(const std::string& path) : TextRows(path), lines_(path) {
    if (!lines_.next(first_)) throw InputError("the file is empty", path, "give one JSON object per line");
    parse(first_);
    if (keys_.empty())
      throw InputError("the first object has no keys", path, R"(write {"text": "...", "label": "..."})");
    for (const auto& name : keys_) add_column(name);
    pending_ = true;
  }

  bool next(std::vector<std::string_view>& fields) override {
    std::string_view line = first_;
    if (!pending_ && !lines_.next(line)) return false;
    pending_ = false;
    fields_.resize(chosen_.size());
    for (auto& field : fields_) field.state = State::missing;
    parse(line);
    fields.clear();
    for (size_t i = 0; i < fields_.size(); ++i) {
      if (fields_[i].state != State::taken) refuse_field(i);
      fields.push_back(fields_[i].text);
    }
    return true;
  }
  int64_t line() const override { return lines_.number(); }

 private:
  enum class State { missing, taken, null, nested };
  struct Field {
    std::string text;
    State state = State::missing;
  };

  void parse(std::string_view line) {
    depth_ = 0;
    object_ = false;
    nlohmann::json::json_sax_t* const events = this;
    if (nlohmann::json::sax_parse(line.begin(), line.end(), events) && object_) return;
    if (error_.empty())
      throw InputError("the line is not a JSON object", where(), R"(write {"text": "...", "label": "..."})");
    throw InputError("the line is not JSON: " + base::printable(error_, 160), where(),
                     "give one JSON object per line, in UTF-8, or rename the file to .csv or .tsv");
  }

  [[noreturn]] void refuse_field(size_t i) const {
    const auto name = base::printable(columns_[chosen_[i]]);
    if (fields_[i].state == State::missing)
      throw InputError(format("the object has no '{}'", name), where(), "fill it in, or remove the line");
    const bool null = fields_[i].state == State::null;
    throw InputError(format("'{}' is {}", name, null ? "null" : "a list or an object, not a text"), where(),
                     "write a text there, or remove the line");
  }

  // The parser's events. Only the members of the object itself count.
  bool null() override { return put(State::null); }
  bool boolean(bool value) override { return put(State::taken, value ? "true" : "false"); }
  bool number_integer(int64_t value) override { return put(State::taken, std::to_string(value)); }
  bool number_unsigned(uint64_t value) override { return put(State::taken, std::to_string(value)); }
  bool number_float(double, const std::string& text) override { return put(State::taken, text); }
  bool string(std::string& text) override {
    put(State::taken);
    if (Field* field = here()) field->text.swap(text);  // the parser reuses the memory
    return true;
  }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool start_object(size_t) override {
    object_ |= depth_ == 0;
    return deeper();
  }
  bool start_array(size_t) override { return deeper(); }
  bool end_object() override { return --depth_, true; }
  bool end_array() override { return --depth_, true; }
  bool key(std::string& name) override {
    if (depth_ != 1) return true;
    if (columns_.empty()) keys_.push_back(name);
    at_ = static_cast<size_t>(
        std::find_if(chosen_.begin(), chosen_.end(), [&](size_t i) { return columns_[i] == name; }) -
        chosen_.begin());
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception& why) override {
    error_ = base::what_is_wrong(why);
    return false;
  }

  bool deeper() {
    put(State::nested);
    if (++depth_ <= base::kDeepestJson) return true;
    error_ = format("brackets are nested more than {} deep", base::kDeepestJson);
    return false;
  }
  Field* here() { return depth_ == 1 && object_ && at_ < fields_.size() ? &fields_[at_] : nullptr; }
  bool put(State state, std::string_view text = {}) {
    if (Field* field = here()) field->text = text, field->state = state;
    return true;
  }

  LineReader lines_;
  std::string_view first_;  // until the next line is read
  bool pending_ = false;
  std::vector<std::string> keys_;  // of the first object
  std::vector<Field> fields_;      // the chosen ones
  size_t at_ = 0;                  // the place of the last key in them
  int depth_ = 0;
  bool object_ = false;
  std::string error_;
};

class LineRows : public TextRows {
 public:
  LineRows(const std::string& path, size_t texts) : TextRows(path), lines_(path), texts_(texts) {
    columns_ = texts == 1 ? std::vector<std::string>{"text"} : std::vector<std::string>{"first", "second"};
  }

  bool next(std::vector<std::string_view>& fields) override {
    std::string_view line;
    if (!lines_.next_or_blank(line)) return false;
    fields.clear();
    if (texts_ == 2) {
      const auto tab = line.find('\t');
      if (tab == std::string_view::npos)
        throw InputError(
            "a line has one text, but the model takes two", where(),
            "put a tab between the two, or give a CSV, TSV or JSONL file with the task's columns");
      fields.push_back(line.substr(0, tab));
      line.remove_prefix(tab + 1);
    }
    fields.push_back(line);
    return true;
  }
  int64_t line() const override { return lines_.number(); }

 private:
  LineReader lines_;
  size_t texts_;
};

constexpr TextLayout kTabs{.delimiter = '\t', .quotes = false};  // IANA's text/tab-separated-values
constexpr TextLayout kJson{.kind = TextLayout::Kind::json};

const std::map<std::string, TextLayout> kByEnding{
    {".csv", {}},      {".tsv", kTabs},    {".tab", kTabs},  {".txt", kTabs},
    {".jsonl", kJson}, {".ndjson", kJson}, {".json", kJson},
};

std::string ending_of(const std::string& name) {
  auto path = base::lower_case(name);
  if (path.ends_with(".gz")) path.resize(path.size() - 3);
  const auto point = path.find_last_of("./");
  return point == std::string::npos ? "" : path.substr(point);
}

}  // namespace

TextLayout layout_of(const std::string& path, char delimiter) {
  const auto named = kByEnding.find(ending_of(path));
  TextLayout layout = named == kByEnding.end() ? TextLayout{} : named->second;
  if (layout.kind == TextLayout::Kind::table && delimiter != ',') {
    layout.delimiter = delimiter;
    layout.quotes = true;
  }
  return layout;
}

bool names_columns(const std::string& path) {
  const auto ending = ending_of(path);
  return ending != ".txt" && kByEnding.contains(ending);
}

void TextRows::choose(const std::vector<std::string>& wanted) {
  chosen_.clear();
  for (const auto& name : wanted) {
    chosen_.push_back(find_column(name, columns_, named_, path_));
    if (std::count(columns_.begin(), columns_.end(), columns_[chosen_.back()]) > 1)
      throw InputError(format("two columns are called '{}'", base::printable(name)), path_,
                       "rename one of them");
  }
}

std::string TextRows::where() const {
  return format("{}:{}", path_, line());
}

void TextRows::add_column(std::string_view name) {
  constexpr size_t kLongest = 4096;
  if (name.size() > kLongest)
    throw InputError(format("the name of column {} has {} bytes", columns_.size(), name.size()), path_,
                     format("give it a name of at most {} bytes", kLongest));
  columns_.emplace_back(name);
}

std::unique_ptr<TextRows> open_table(const std::string& path, const TextLayout& layout) {
  return std::make_unique<TableRows>(path, layout);
}

std::unique_ptr<TextRows> open_rows(const std::string& path, const TextLayout& layout) {
  if (layout.kind == TextLayout::Kind::table) return open_table(path, layout);
  if (layout.kind == TextLayout::Kind::json) return std::make_unique<JsonRows>(path);
  return std::make_unique<LineRows>(path, layout.texts_in_line);
}

}  // namespace lockstep::data
