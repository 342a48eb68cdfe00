#include "lockstep/data/rows/text_rows.h"

#include <algorithm>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/data/rows/fields.h"
#include "lockstep/data/rows/line_reader.h"

namespace lockstep::data {
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
