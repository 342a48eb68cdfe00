#include "trainer/config/load.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <variant>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "trainer/config/keys.h"

namespace lockstep::config {
namespace {

constexpr int kDeepest = 20;  // each costs a copy of what is inside

bool is_name(const std::string& text) {
  const auto fits = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  return !text.empty() && !std::isdigit(static_cast<unsigned char>(text[0])) &&
         std::all_of(text.begin(), text.end(), fits);
}

struct Reference {
  std::string name;
  std::optional<std::string> otherwise;
};

Reference split(const std::string& inside) {
  const size_t at = inside.find(":-");
  if (at == std::string::npos) return {inside, std::nullopt};
  return {inside.substr(0, at), inside.substr(at + 2)};
}

// Where the '}' is that ends the "${" at `from`: an `otherwise` may hold references of its own.
size_t closing(const std::string& text, size_t from, const std::string& what, const std::string& where) {
  int depth = 0;
  for (size_t at = from; at < text.size(); ++at) {
    if (text.compare(at, 2, "${") == 0 && ++depth > kDeepest)
      throw InputError(format("{}: more than {} nested '${{'", what, kDeepest), where, "write it with fewer");
    if (text[at] == '}' && --depth == 0) return at;
  }
  return std::string::npos;
}

bool is_unset_or_empty(const std::string& name, const std::map<std::string, std::string>& environment) {
  const auto found = environment.find(name);
  return found == environment.end() || found->second.empty();
}

std::string value_of(const std::string& name, const std::map<std::string, std::string>& environment,
                     const std::string& what, const std::string& where) {
  const auto found = environment.find(name);
  if (found == environment.end())
    throw InputError(format("{} needs the environment variable {}, which is not set", what, name), where,
                     format("set {0}, or give a default: ${{{0}:-DEFAULT}}", name));
  const auto control = [](unsigned char c) { return c < 0x20 || c == 0x7F; };
  if (base::invalid_utf8(found->second) || std::any_of(found->second.begin(), found->second.end(), control))
    throw InputError(format("{}: the environment variable {} holds '{}', which is not a path", what, name,
                            base::printable(found->second)),
                     where, "set it to plain text");
  return found->second;
}

}  // namespace

std::string expand(const std::string& text, const std::map<std::string, std::string>& environment,
                   const std::string& what, const std::string& where) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '$') {
      out += text[i];
    } else if (text.compare(i, 2, "$$") == 0) {
      out += '$';
      ++i;
    } else {
      const size_t end = text.compare(i, 2, "${") == 0 ? closing(text, i, what, where) : std::string::npos;
      const Reference reference = split(end == std::string::npos ? "" : text.substr(i + 2, end - i - 2));
      if (!is_name(reference.name))
        throw InputError(format("{}: the '$' in '{}' names no variable", what, base::printable(text)), where,
                         "write ${NAME} or ${NAME:-DEFAULT} for a variable, and $$ for a dollar sign");
      const bool otherwise = reference.otherwise && is_unset_or_empty(reference.name, environment);
      out += otherwise ? expand(*reference.otherwise, environment, what, where)
                       : value_of(reference.name, environment, what, where);
      i = end;
    }
  }
  return out;
}

std::string unexpand(const std::string& text) {
  std::string out;
  for (const char c : text) out += c == '$' ? "$$" : std::string(1, c);
  return out;
}

std::vector<std::string> names_in_braces(const std::string& text) {
  std::vector<std::string> names;
  for (size_t at = text.find("${"); at != std::string::npos; at = text.find("${", at + 2)) {
    const size_t end = text.find_first_of(":}", at);
    if (end == std::string::npos) break;
    const std::string name = text.substr(at + 2, end - at - 2);
    if (is_name(name)) names.push_back(name);
  }
  return names;
}

namespace {

// How a key's value is written.
struct Shape {
  YamlNode::Kind operator()(const std::map<std::string, std::string>*) const { return YamlNode::Kind::map; }
  YamlNode::Kind operator()(const std::array<double, 2>*) const { return YamlNode::Kind::list; }
  template <class Each>
  YamlNode::Kind operator()(const std::vector<Each>*) const {
    return YamlNode::Kind::list;
  }
  template <class Other>
  YamlNode::Kind operator()(const Other*) const {
    return YamlNode::Kind::scalar;
  }
};

YamlNode::Kind shape_of(const Key& key) {
  Settings settings;
  return std::visit(Shape{}, key.field(settings));
}

class Loader {
 public:
  Loader(Loaded& loaded, const std::map<std::string, std::string>& environment, Mistakes& mistakes)
      : loaded_(loaded), environment_(environment), mistakes_(mistakes) {
    for (const Key& key : keys()) loaded_.origins[key.path] = {};
  }

  void read_file(const YamlNode& root) {
    if (root.kind == YamlNode::Kind::null) return;
    if (root.kind != YamlNode::Kind::map)
      throw InputError(format("a config must be a map of sections (got {})", describe(root)),
                       root.place.text(), "begin with a section, for example train: {epochs: 5}");
    for (const auto& entry : root.entries)
      mistakes_.gather([&] { read_section(*entry.first, *entry.second); });
  }

  void read_set(const std::string& argument) {
    const size_t equals = argument.find('=');
    const std::string path = argument.substr(0, equals);
    const TextPlace place{"--set " + base::printable(path)};
    if (equals == std::string::npos)
      throw InputError("--set needs KEY=VALUE", place.text(), "pass, for example, --set train.epochs=3");
    const std::string text = argument.substr(equals + 1);
    if (base::invalid_utf8(text))
      throw InputError("the value is not UTF-8 text", place.text(), "write it in UTF-8");
    if (const size_t dot = path.find('.', path.find('.') + 1); dot != std::string::npos) {
      const Key* map = find_key(path.substr(0, dot));
      if (map && shape_of(*map) == YamlNode::Kind::map)
        return set_entry(*map, path.substr(dot + 1), text, place);
    }
    const auto& sections = config::sections();
    if (std::find(sections.begin(), sections.end(), path) != sections.end())
      throw InputError(
          format("{} is a section, not a key", path), place.text(),
          format("name a key in it: --set {}.KEY=VALUE (lockstep config shows every key)", path));
    const Key& key = known(path, place);
    store(key, *set_node(key, text, place), {Origin::set, "--set"});
  }

 private:
  const Key& known(const std::string& path, const TextPlace& place) const {
    if (const Key* key = find_key(path)) return *key;
    throw InputError(format("unknown key {}", base::printable(path)), place.text(),
                     did_you_mean(path) + "see all keys with lockstep config");
  }

  static const std::string& name_of(const YamlNode& name) {
    if (name.kind == YamlNode::Kind::scalar) return name.text;
    throw InputError(format("a key must be a word (got {})", describe(name)), name.place.text(),
                     "write  key: value");
  }

  void read_section(const YamlNode& name, const YamlNode& section) {
    const std::string path = name_of(name);
    const auto& sections = config::sections();
    if (path == "<<")
      throw InputError("merge keys (<<) are not supported", name.place.text(), "write the keys out");
    if (const Key* key = find_key(path))
      throw InputError(format("dotted keys are not supported in a config file: {}", path), name.place.text(),
                       format("write it nested: {}: {{{}: ...}}", key->section(), key->name()));
    if (std::find(sections.begin(), sections.end(), path) == sections.end())
      throw InputError(format("unknown section {}", base::printable(path)), name.place.text(),
                       did_you_mean(path) + "use one of " + base::join(sections, ", "));
    if (section.kind == YamlNode::Kind::null) return;
    if (section.kind != YamlNode::Kind::map)
      throw InputError(format("section {} must be a map of keys (got {})", path, describe(section)),
                       section.place.text(), format("write {}: {{key: value}}", path));
    for (const auto& entry : section.entries) {
      mistakes_.gather([&] { read_key(path + "." + name_of(*entry.first), *entry.first, *entry.second); });
    }
  }

  void read_key(const std::string& path, const YamlNode& name, const YamlNode& value) {
    const Key& key = known(path, name.place);
    store(key, value, {Origin::file, name.place.text()});
  }

  void store(const Key& key, const YamlNode& value, const Origin& origin) {
    const bool given = read_value(key, value, environment_, loaded_.settings);
    if (!key.rules.table.empty()) loaded_.named.insert_or_assign(key.path, value);
    loaded_.origins[key.path] = given ? origin : Origin{};
  }

  // lists and maps are written as in the file; everything else is taken as it is, without more quoting
  static NodePtr set_node(const Key& key, const std::string& text, const TextPlace& place) {
    if (shape_of(key) != YamlNode::Kind::scalar) return parse_yaml(text, place.file);
    auto node = std::make_shared<YamlNode>();
    node->kind = YamlNode::Kind::scalar;
    node->place = place;
    node->text = text;
    return node;
  }

  void set_entry(const Key& key, const std::string& name, const std::string& text, const TextPlace& place) {
    if (name.empty())
      throw InputError(key.path + ". needs a name", place.text(),
                       format("pass --set {}.NAME=VALUE", key.path));
    (*std::get<std::map<std::string, std::string>*>(key.field(loaded_.settings)))[name] = text;
    loaded_.origins[key.path] = {Origin::set, "--set"};
  }

  Loaded& loaded_;
  const std::map<std::string, std::string>& environment_;
  Mistakes& mistakes_;
};

// A library may bring rows that other keys name, so all are loaded before the first name is judged.
void find_rows(const Loaded& loaded, Libraries libraries, Mistakes& mistakes) {
  bool unloaded = false;
  for (const Key* key : selectors()) {
    const auto name = chosen_name(loaded.settings, key->path);
    if (!base::names_library(name)) continue;
    if (libraries == Libraries::load) mistakes.gather([&] { base::load_row(key->rules.table, name); });
    unloaded = libraries == Libraries::leave;
  }
  if (unloaded) return;
  for (const auto& [path, node] : loaded.named) {
    const auto name = chosen_name(loaded.settings, path);
    if (name.empty() || base::names_library(name) || base::find_row(find_key(path)->rules.table, name))
      continue;
    mistakes.gather([key = find_key(path), wrong = &node] { refuse_row(*key, *wrong); });
  }
}

// What was misread or names no row would only be said again, of what depends on it.
void check_settings(Loaded& loaded, Libraries libraries, Mistakes mistakes) {
  find_rows(loaded, libraries, mistakes);
  mistakes.refuse();
  resolve(loaded);
  check_together(loaded);
  warn_unused(loaded);
}

}  // namespace

Loaded load_settings(const std::string& text, const std::string& file_name,
                     const std::vector<std::string>& sets,
                     const std::map<std::string, std::string>& environment, Libraries libraries) {
  Loaded loaded;
  loaded.text = text;
  Mistakes mistakes;
  Loader loader(loaded, environment, mistakes);
  loader.read_file(*parse_yaml(text, file_name));
  for (const std::string& argument : sets) mistakes.gather([&] { loader.read_set(argument); });
  check_settings(loaded, libraries, std::move(mistakes));
  return loaded;
}

void load_libraries(Loaded& loaded) {
  const auto said = std::exchange(loaded.warnings, {});
  check_settings(loaded, Libraries::load, {});
  std::erase_if(loaded.warnings, [&](const auto& warning) {
    return std::find(said.begin(), said.end(), warning) != said.end();
  });
}

}  // namespace lockstep::config
