// One value: from a YAML node into the field of its key, and back.
#include "trainer/config/keys.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "trainer/config/load.h"
#include "trainer/config/numbers.h"

namespace lockstep::config {
namespace {

class Reader {
 public:
  Reader(const Key& key, SettingsField field, const std::map<std::string, std::string>& environment,
         const YamlNode& node)
      : key_(key), field_(field), environment_(environment), node_(node) {}
  void read() const { std::visit(*this, field_); }

  void operator()(bool* out) const {
    const std::string& text = scalar(node_, !node_.quoted);
    const bool yes = text == "true" || text == "True" || text == "TRUE";
    if (!yes && text != "false" && text != "False" && text != "FALSE") refuse(node_, "");
    *out = yes;
  }

  void operator()(int64_t* out) const { *out = whole(node_); }
  void operator()(double* out) const { *out = number(node_); }
  void operator()(std::optional<double>* out) const { *out = number(node_); }
  void operator()(std::string* out) const { *out = text(node_); }
  template <OneOfWords Choice>
  void operator()(Choice* out) const {
    *out = choice_of<Choice>(text(node_));
  }

  void operator()(std::chrono::milliseconds* out) const {
    const auto duration = parse_duration(scalar(node_, true));
    if (!duration) refuse(node_, "use the units d, h, m (minutes), s or ms; a number alone means seconds");
    check_range(node_, static_cast<double>(duration->count()));
    *out = *duration;
  }

  void operator()(std::array<double, 2>* out) const {
    if (list().size() != 2) refuse(node_, "");
    *out = {number(*list()[0]), number(*list()[1])};
  }

  void operator()(std::vector<int64_t>* out) const { fill(out, &Reader::whole); }
  void operator()(std::vector<double>* out) const { fill(out, &Reader::number); }
  void operator()(std::vector<std::string>* out) const { fill(out, &Reader::text); }

  [[noreturn]] void refuse_row() const {
    refuse(node_, base::did_you_mean(node_.text, base::names_of(key_.rules.table)));
  }

  void operator()(std::map<std::string, std::string>* out) const {
    if (node_.kind == YamlNode::Kind::null) return;
    if (node_.kind != YamlNode::Kind::map) refuse(node_, "");
    for (const auto& [name, value] : node_.entries) (*out)[scalar(*name, true)] = scalar(*value, true);
  }

 private:
  [[noreturn]] void refuse(const YamlNode& node, const std::string& hint) const {
    throw InputError(format("{} must be {} (got {})", key_.path, expected(key_, field_), describe(node)),
                     node.place.text(), hint.empty() ? meaning() : hint);
  }

  std::string meaning() const {
    const auto hint = format("set {} ({}) to {}", key_.path, key_.help, expected(key_, field_));
    if (!key_.field) return hint;
    return format("{}, or omit it (default: {})", hint,
                  key_.rules.word.empty() ? value_text(key_, Settings{}) : key_.rules.word);
  }

  const std::string& scalar(const YamlNode& node, bool fits) const {
    if (node.kind == YamlNode::Kind::null) refuse(node, "set a value, or remove the line to use the default");
    if (node.kind != YamlNode::Kind::scalar) refuse(node, "");
    if (!fits) refuse(node, "write it without quotes");
    return node.text;
  }

  void check_range(const YamlNode& node, double value) const {
    const Rules& rules = key_.rules;
    const bool low = rules.above_min ? value <= rules.min : value < rules.min;
    const bool high = rules.below_max ? value >= rules.max : value > rules.max;
    if (low || high) refuse(node, "");
  }

  int64_t whole(const YamlNode& node) const {
    const auto value = parse_int(scalar(node, !node.quoted));
    if (!value) refuse(node, "");
    check_range(node, static_cast<double>(*value));
    return *value;
  }

  double number(const YamlNode& node) const {
    const auto value = parse_number(scalar(node, !node.quoted));
    if (!value) refuse(node, "");
    check_range(node, *value);
    return *value;
  }

  std::string text(const YamlNode& node) const {
    if (node.kind == YamlNode::Kind::null) refuse(node, "write \"\" for an empty text, or remove the line");
    const std::string& text = scalar(node, true);
    const auto& choices = key_.rules.choices;
    if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end())
      refuse(node, key_.path == "launch.device" && base::lower_case(text) == "gpu"
                       ? "use cuda for a GPU"
                       : base::did_you_mean(text, choices));
    return key_.rules.path ? expand(text, environment_, key_.path, node.place.text()) : text;
  }

  const std::vector<NodePtr>& list() const {
    if (node_.kind != YamlNode::Kind::list) refuse(node_, "write it in brackets: [a, b]");
    return node_.items;
  }

  template <class Value>
  void fill(std::vector<Value>* out, Value (Reader::*one)(const YamlNode&) const) const {
    out->clear();
    for (const NodePtr& item : list()) out->push_back((this->*one)(*item));
  }

  const Key& key_;
  SettingsField field_;
  const std::map<std::string, std::string>& environment_;
  const YamlNode& node_;
};

// plain scalars that some YAML reader, of 1.1 or 1.2, takes for more than text
bool needs_quotes(const std::string& text) {
  static const std::vector<std::string> words = {"true", "false", "yes", "no",   "on",
                                                 "off",  "y",     "n",   "null", "~"};
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '/' || c == '.' || c == '-';
  };
  if (text.empty() || !std::all_of(text.begin(), text.end(), plain)) return true;
  if (std::find(words.begin(), words.end(), base::lower_case(text)) != words.end()) return true;
  const auto first = static_cast<unsigned char>(text[0]);
  const bool path = text[0] == '/' || text.starts_with("./") || text.starts_with("../");
  return !std::isalpha(first) && first != '_' && !path;
}

struct Writer {
  bool path;

  std::string operator()(const bool* value) const { return *value ? "true" : "false"; }
  std::string operator()(const int64_t* value) const { return std::to_string(*value); }
  std::string operator()(const double* value) const {
    return format("{}", *value);  // the shortest that reads back the same bits
  }
  std::string operator()(const std::optional<double>* value) const {
    return *value ? format("{}", **value) : "default";
  }
  std::string operator()(const std::chrono::milliseconds* value) const { return duration_text(*value); }
  std::string operator()(const std::string* value) const {
    return yaml_text(path ? unexpand(*value) : *value);
  }
  template <OneOfWords Choice>
  std::string operator()(const Choice* value) const {
    return yaml_text(word_of(*value));
  }

  template <class List>
  std::string operator()(const List* list) const {
    std::vector<std::string> parts;
    for (const auto& item : *list) parts.push_back((*this)(&item));
    return "[" + base::join(parts, ", ") + "]";
  }

  std::string operator()(const std::map<std::string, std::string>* map) const {
    std::vector<std::string> parts;
    for (const auto& [name, value] : *map) parts.push_back(yaml_text(name) + ": " + yaml_text(value));
    return "{" + base::join(parts, ", ") + "}";
  }
};

}  // namespace

bool read_value(const Key& key, const YamlNode& node, const std::map<std::string, std::string>& environment,
                Settings& settings) {
  const bool word =
      !key.rules.word.empty() && node.kind == YamlNode::Kind::scalar && node.text == key.rules.word;
  Settings defaults;
  if (word) {
    std::visit([&](auto* out) { *out = *std::get<decltype(out)>(key.field(defaults)); }, key.field(settings));
  } else {
    Reader(key, key.field(settings), environment, node).read();
  }
  return !word;
}

void read_field(const Key& key, const YamlNode& node, SettingsField field) {
  Reader(key, field, {}, node).read();
}

void refuse_row(const Key& key, const YamlNode& node) {
  Settings settings;
  Reader(key, key.field(settings), {}, node).refuse_row();
}

std::string value_text(const Key& key, const Settings& settings) {
  return std::visit(Writer{key.rules.path}, field_of(key, settings));
}

std::string yaml_text(const std::string& text) {
  if (!needs_quotes(text)) return text;
  std::string out = "\"";
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\xC2' && at + 1 < text.size() && static_cast<unsigned char>(text[at + 1]) < 0xA0) {
      out +=
          format("\\x{:02x}", static_cast<unsigned char>(text[++at]));  // U+0080 to U+009F, as terminals obey
    } else if (c == '"' || c == '\\') {
      out += format("\\{}", c);
    } else {
      out += byte < 0x20 || byte == 0x7F ? format("\\x{:02x}", byte) : std::string(1, c);
    }
  }
  return out + "\"";
}

}  // namespace lockstep::config
