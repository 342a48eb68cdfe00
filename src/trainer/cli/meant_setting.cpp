#include "trainer/cli/meant_setting.h"

#include <algorithm>
#include <filesystem>
#include <variant>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "trainer/config/keys.h"

namespace lockstep::cli {
namespace {

std::string without_dashes(const std::string& option) {
  return option.substr(std::min(option.find_first_not_of('-'), option.size()));
}

// the key's path; a section is none
std::string key_for(const std::string& name, Near near) {
  auto word = name;
  std::replace(word.begin(), word.end(), '-', '_');
  auto path = near == Near::named ? config::meant_key(word) : config::nearest_path(word);
  if (config::find_key(path)) return path;
  const auto row = (path.empty() ? word : path) + ".name";  // a section: which model, which optimiser
  return config::find_key(row) ? row : "";
}

bool is_flag(const std::string& path) {
  Settings settings;
  return std::holds_alternative<bool*>(config::find_key(path)->field(settings));
}

std::string written(const std::string& path, const std::string& value) {
  const auto text = base::printable(value);
  const bool plain = text.find_first_of(" \t\"'$&;|<>()*?[]{}\\`!#") == text.npos;
  return plain ? format("--set {}={}", path, text) : format("--set '{}={}'", path, text);
}

// "--fp16" is a value of train.precision
bool is_value(const std::string& name, const std::string& path) {
  const auto& choices = config::find_key(path)->rules.choices;
  return std::find(choices.begin(), choices.end(), name) != choices.end();
}

// "--epochs=3", or "--epochs" and what follows it
std::string value_in(const std::vector<std::string>& args, const std::string& name, const std::string& path) {
  if (is_value(name, path)) return name;
  for (size_t i = 0; i < args.size(); ++i) {
    const auto equals = args[i].find('=');
    if (!args[i].starts_with('-') || without_dashes(args[i].substr(0, equals)) != name) continue;
    if (equals != args[i].npos) return args[i].substr(equals + 1);
    if (is_flag(path)) return "true";
    if (i + 1 < args.size() && !args[i + 1].starts_with("--")) return args[i + 1];
  }
  return "VALUE";
}

}  // namespace

std::string setting_of_option(const std::string& option, const std::vector<std::string>& args, Near near) {
  const auto bare = without_dashes(option);
  const auto name = bare.substr(0, bare.find('='));
  const auto path = key_for(name, near);
  return path.empty() ? "" : written(path, value_in(args, name, path));
}

std::string setting_of_word(const std::string& word) {
  const auto equals = word.find('=');
  std::error_code failed;
  if (equals == word.npos || std::filesystem::exists(word, failed)) return "";
  const auto path = key_for(word.substr(0, equals), Near::spelt);
  return path.empty() ? "" : written(path, word.substr(equals + 1));
}

std::string setting_in_two_words(const std::vector<std::string>& args) {
  for (size_t i = 0; i + 2 < args.size(); ++i) {
    if (args[i] != "--set" || args[i + 1].find('=') != std::string::npos || args[i + 2].starts_with("--"))
      continue;
    const auto path = key_for(args[i + 1], Near::spelt);
    if (!path.empty()) return written(path, args[i + 2]);
  }
  return "";
}

}  // namespace lockstep::cli
