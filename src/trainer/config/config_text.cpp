#include "trainer/config/config_text.h"

#include <nlohmann/json.hpp>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"
#include "trainer/config/keys.h"
#include "trainer/config/numbers.h"

namespace lockstep::config {
namespace {

using Origins = std::map<std::string, Origin>;

template <class Takes>
std::string yaml_of(const Settings& settings, const Origins& origins, const Takes& takes) {
  std::string text;
  std::string section;
  for (const Key& key : keys()) {
    if (!takes(key)) continue;
    if (key.section() != section) {
      section = key.section();
      text += section + ":\n";
    }
    const std::string line = format("  {}: {}", key.name(), value_text(key, settings));
    const auto origin = origins.find(key.path);
    text += origin == origins.end() ? line + "\n" : format("{:<38}  # {}\n", line, origin->second.text);
  }
  return text;
}

}  // namespace

std::string to_yaml(const Settings& settings, const Origins& origins) {
  return yaml_of(settings, origins, [](const Key&) { return true; });
}

std::string changed_yaml(const Loaded& loaded) {
  const Settings defaults;
  return yaml_of(loaded.settings, loaded.origins, [&](const Key& key) {
    if (loaded.origins.at(key.path).kind == Origin::by_default) return false;
    const auto value = value_text(key, loaded.settings);
    const auto* meant = chosen_default(loaded.settings, key.path);
    return value != value_text(key, defaults) && (!meant || value != *meant);
  });
}

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

// a pipe would end the table's cell
std::string cell(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '|' ? "\\|" : std::string(1, c);
  return out;
}

// the rows of the tables that a section's keys name
std::string tables_of(const std::string& section) {
  std::string text;
  for (const Key* key : selectors()) {
    if (key->section() != section) continue;
    text += format("\n| `{}` | meaning |\n|---|---|\n", key->path);
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
      text += format("{}### {}\n\n| key | default | value | meaning | used by |\n|---|---|---|---|---|\n",
                     text.empty() ? "" : "\n", section);
    }
    const auto standard = key.rules.word.empty() ? value_text(key, Settings{}) : key.rules.word;
    text += format("| `{}` | `{}` | {} | {} | {} |\n", key.path, cell(standard), cell(expected(key)),
                   cell(key.help), base::join(readers(key), ", "));
  }
  return text + tables_of(section);
}

namespace {

constexpr size_t kMaxBytes = 1'000'000;
constexpr const char* kConfigs = "configs";  // where those lie that ship

// "mnist" and "mnist.yaml" are configs/mnist.yaml
std::string meant_config(const std::string& path) {
  auto near = base::did_you_mean_file(path);
  if (!near.empty() || path.empty() || std::filesystem::path(path).has_parent_path()) return near;
  const auto shipped = (std::filesystem::path(kConfigs) / path).string();
  std::error_code none;
  if (std::filesystem::is_regular_file(base::find_path(shipped), none)) return base::did_you_mean(shipped);
  return base::did_you_mean_file(shipped);
}

// of a run's folder, what it ran
std::string config_in(const std::string& path) {
  std::error_code none;
  const auto inside = std::filesystem::path(path) / "config.yaml";
  return !path.empty() && std::filesystem::exists(inside, none) ? inside.string() : path;
}

void check_there(const std::string& path) {
  std::error_code failed;
  if (std::filesystem::is_directory(path, failed))
    throw InputError("this folder holds no config.yaml", path,
                     "pass a config file, or the folder of a run, like runs/mnist");
  if (std::filesystem::status(path, failed).type() != std::filesystem::file_type::not_found) return;
  if (const auto near = meant_config(path); !near.empty())
    throw InputError(format("the config cannot be read: {}", std::strerror(ENOENT)), path,
                     near + "check the path and its permissions");
}

}  // namespace

ConfigText read_config_text(const std::string& path) {
  const std::string found = config_in(base::find_path(path));
  check_there(found);
  return {found, base::read_small_file(found, kMaxBytes, "the config")};
}

}  // namespace lockstep::config
