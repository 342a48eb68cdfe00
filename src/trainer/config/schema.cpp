#include "trainer/config/schema.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "trainer/config/chosen.h"
#include "trainer/config/numbers.h"
#include "trainer/config/value.h"

namespace lockstep::config {
namespace {

using Json = nlohmann::ordered_json;

Json bound(double value) {
  return std::trunc(value) == value && std::abs(value) < 1e15 ? Json(static_cast<int64_t>(value))
                                                              : Json(value);
}

Json ranged(Json schema, const Rules& rules) {
  if (std::isfinite(rules.min)) schema[rules.above_min ? "exclusiveMinimum" : "minimum"] = bound(rules.min);
  if (std::isfinite(rules.max)) schema[rules.below_max ? "exclusiveMaximum" : "maximum"] = bound(rules.max);
  return schema;
}

// the type of each field, and its value by default
struct Schema {
  const Rules& rules;

  Json operator()(const bool* value) const { return {{"type", "boolean"}, {"default", *value}}; }
  Json operator()(const int64_t* value) const {
    return ranged({{"type", "integer"}, {"default", *value}}, rules);
  }
  Json operator()(const double* value) const {
    return ranged({{"type", "number"}, {"default", *value}}, rules);
  }
  Json operator()(const std::optional<double>*) const { return ranged({{"type", "number"}}, rules); }
  Json operator()(const std::string* value) const {
    Json schema = {{"type", "string"}, {"default", *value}};
    if (!rules.choices.empty()) schema["enum"] = rules.choices;
    return schema;
  }
  template <OneOfWords Choice>
  Json operator()(const Choice* value) const {
    return {{"type", "string"}, {"default", word_of(*value)}, {"enum", rules.choices}};
  }
  Json operator()(const std::chrono::milliseconds* value) const {
    const Json text = {{"type", "string"}, {"pattern", "^([0-9.]+|([0-9.]+(d|h|m|s|ms))+)$"}};
    return {{"anyOf", {ranged({{"type", "number"}}, rules), text}}, {"default", duration_text(*value)}};
  }
  Json operator()(const std::array<double, 2>* value) const {
    const Json item = ranged({{"type", "number"}}, rules);
    return {{"type", "array"}, {"items", item}, {"minItems", 2}, {"maxItems", 2}, {"default", *value}};
  }
  Json operator()(const std::vector<int64_t>* value) const {
    return {{"type", "array"}, {"items", ranged({{"type", "integer"}}, rules)}, {"default", *value}};
  }
  Json operator()(const std::vector<double>* value) const {
    return {{"type", "array"}, {"items", ranged({{"type", "number"}}, rules)}, {"default", *value}};
  }
  Json operator()(const std::vector<std::string>* value) const {
    return {{"type", "array"}, {"items", {{"type", "string"}}}, {"default", *value}};
  }
  Json operator()(const std::map<std::string, std::string>*) const {
    return {{"type", "object"}, {"additionalProperties", {{"type", {"string", "number", "boolean"}}}}};
  }
};

// a row of an open table, or the path of a library that brings one
Json row_schema(const Key& key, const std::string& otherwise) {
  auto names = row_names(key);
  if (otherwise.empty()) names.push_back(otherwise);
  return {{{"enum", names}}, {{"pattern", "/|\\.so$|\\.so:"}}};
}

Json key_schema(const Key& key) {
  Settings defaults;
  Json schema = std::visit(Schema{key.rules}, key.field(defaults));
  if (!key.rules.table.empty()) schema["anyOf"] = row_schema(key, schema["default"]);
  if (!key.rules.word.empty()) {
    schema.erase("default");
    schema = {{"anyOf", {schema, {{"const", key.rules.word}}}}, {"default", key.rules.word}};
  }
  schema["description"] = key.help;
  return schema;
}

std::string used_text(const Key& key) {
  const auto names = readers(key);
  return names.empty() ? "" : format(" ({})", base::join(names, ", "));
}

// a pipe would end the table's cell
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '|' ? "\\|" : std::string(1, c);
  return out;
}

std::string default_text(const Key& key) {
  return key.rules.word.empty() ? value_text(key, Settings{}) : key.rules.word;
}

// the rows of the tables that a section's keys name
std::string tables_of(const std::string& section) {
  std::string text;
  for (const Key* key : selectors()) {
    if (key->section() != section) continue;
    text += format("\n| `{}` | is |\n|---|---|\n", key->path);
    for (const auto& name : row_names(*key)) {
      const auto* row = base::find_row(key->rules.table, name);
      const auto brought = row->library.empty() ? "" : format(" ({})", row->library);
      text += format("| `{}` | {}{} |\n", row->name, cell(row->facts.help), cell(brought));
    }
  }
  return text;
}

}  // namespace

std::string json_schema() {
  Json sections = Json::object();
  for (const Key& key : keys()) sections[key.section()]["properties"][key.name()] = key_schema(key);
  Json properties = Json::object();
  for (const auto& [name, section] : sections.items()) {
    properties[name] = {
        {"type", {"object", "null"}}, {"additionalProperties", false}, {"properties", section["properties"]}};
  }
  const Json schema = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                       {"title", "lockstep config"},
                       {"type", "object"},
                       {"additionalProperties", false},
                       {"properties", properties}};
  return schema.dump(2) + "\n";
}

std::string reference() {
  std::string text;
  std::string section;
  for (const Key& key : keys()) {
    if (key.section() != section) {
      text += tables_of(section);
      section = key.section();
      text += format("{}### {}\n\n| key | default | value | meaning |\n|---|---|---|---|\n",
                     text.empty() ? "" : "\n", section);
    }
    text += format("| `{}` | `{}` | {} | {}{} |\n", key.path, cell(default_text(key)), cell(expected(key)),
                   cell(key.help), used_text(key));
  }
  return text + tables_of(section);
}

}  // namespace lockstep::config
