// JSON Lines: an object a line, whose texts, numbers and truths are fields.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "lockstep/data/rows/line_reader.h"
#include "lockstep/data/rows/text_rows.h"

namespace lockstep::data {
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

}  // namespace lockstep::data
