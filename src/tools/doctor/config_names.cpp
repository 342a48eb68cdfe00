#include "tools/doctor/config_names.h"

#include <filesystem>

#include "trainer/config/config_text.h"
#include "trainer/config/yaml.h"

namespace lockstep::doctor {
namespace {

using config::YamlNode;

void hide_all(std::vector<std::string>& names, const YamlNode& node) {
  const bool number = node.text.find_first_not_of("0123456789.,eE+-") == std::string::npos;
  if (node.kind == YamlNode::Kind::scalar && !number && node.text.size() >= kShortestSecret)
    names.push_back(node.text);
  for (const auto& item : node.items) hide_all(names, *item);
  for (const auto& [key, value] : node.entries) {
    hide_all(names, *key);
    hide_all(names, *value);
  }
}

struct Owned {
  const char* section;
  const char* key;
};

constexpr Owned kOwned[] = {{"model", "options"}, {"task", "options"},  {"optim", "options"},
                            {"run", "name"},      {"task", "file"},     {"task", "eval_file"},
                            {"task", "label"},    {"task", "features"}, {"task", "classes"}};

void look_through(std::vector<std::string>& names, const YamlNode& document) {
  for (const auto& [section, content] : document.entries)
    for (const auto& [key, value] : content->entries)
      for (const Owned& row : kOwned)
        if (section->text == row.section && key->text == row.key) hide_all(names, *value);
}

}  // namespace

void hide_config(Secrets& secrets, const std::string& path) {
  if (path.empty()) return;
  const std::filesystem::path file = path;
  for (const auto& name : {path, file.filename().string(), file.stem().string()})
    if (name.size() >= kShortestSecret) secrets["config"].push_back(name);
  try {
    const auto read = config::read_config_text(path);
    if (const auto document = config::parse_yaml(read.text, read.name))
      look_through(secrets["name"], *document);
  } catch (const std::exception&) {
    return;  // what it says, nobody has read
  }
}

}  // namespace lockstep::doctor
