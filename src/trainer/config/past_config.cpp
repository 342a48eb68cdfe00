// The config.yaml that a run left, whichever lockstep wrote it.
#include "trainer/config/load.h"

#include <type_traits>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "trainer/config/keys.h"

namespace lockstep::config {
namespace {

[[noreturn]] void refuse_past(const std::string& what, const TextPlace& place) {
  throw InputError("not the config of a run: " + what, place.text(), "start a new run (without --resume)");
}

// Short, whatever stands there: aliases of aliases can be as long as one likes.
std::string shown(const YamlNode& node) {
  return node.kind == YamlNode::Kind::scalar ? base::printable(node.text) : describe(node);
}

class PastReader {
 public:
  explicit PastReader(const YamlNode& root) {
    if (root.kind != YamlNode::Kind::map)
      refuse_past(format("expected a map of sections (got {})", describe(root)), root.place);
    for (const auto& [name, section] : root.entries) read_section(*name, *section);
    if (foreign_.size() > keys().size()) refuse_past("most of its keys are unknown", root.place);
    for (const Key& key : keys()) loaded_.origins.try_emplace(key.path);
    resolve(loaded_);
  }

  PastConfig take() { return {std::move(loaded_.settings), std::move(foreign_)}; }

 private:
  void read_section(const YamlNode& name, const YamlNode& section) {
    if (section.kind == YamlNode::Kind::null) return;
    if (section.kind != YamlNode::Kind::map) foreign_[shown(name)] = shown(section);
    for (const auto& [key, value] : section.entries) read_key(shown(name) + "." + shown(*key), *value);
  }

  void read_key(const std::string& path, const YamlNode& value) {
    const Key* key = find_key(path);
    if (!key || !can_read(*key, value)) foreign_[path] = shown(value);
  }

  bool can_read(const Key& key, const YamlNode& value) {
    Settings with = loaded_.settings;
    try {
      if (read_value(key, value, {}, with)) loaded_.origins[key.path] = {Origin::file, value.place.text()};
    } catch (const InputError&) {
      return false;
    }
    loaded_.settings = std::move(with);
    return true;
  }

  Loaded loaded_;
  std::map<std::string, std::string> foreign_;
};

bool makes_another_run(const Key& key, const Settings& then, const Settings& now) {
  if (key.rules.about == About::place) return false;
  const auto field = field_of(key, now);
  return std::visit(
      [&](auto* was) {
        const auto &before = *was, &after = *std::get<decltype(was)>(field);
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(before)>>)  // a longer one is the same run
          if (key.rules.about == About::length && before > 0 && (after == 0 || after > before)) return false;
        return before != after;
      },
      field_of(key, then));
}

// Of a key that no row tells of, its section does.
bool is_about_the_place(const std::string& path) {
  if (const Key* key = find_key(path)) return key->rules.about == About::place;
  bool known = false;
  for (const Key& key : keys()) {
    if (key.section() != path.substr(0, path.find('.'))) continue;
    if (key.rules.about != About::place) return false;
    known = true;
  }
  return known;
}

void put_text(const Key& key, Settings& settings, const std::string& text) {
  const auto put = [&](auto* field) {
    using Value = std::decay_t<decltype(*field)>;
    if constexpr (std::is_same_v<Value, std::string>) *field = text;
    if constexpr (OneOfWords<Value>) *field = choice_of<Value>(text);
  };
  std::visit(put, key.field(settings));
}

bool is_left_open(const Key& key, const Settings& settings) {
  return !key.rules.once.before.empty() && is_read(key.path, settings) &&
         text_of(key, settings) == key.rules.once.open;
}

// What a run did that left it open.
Settings as_before(Settings settings) {
  for (const Key& key : keys())
    if (is_left_open(key, settings)) put_text(key, settings, key.rules.once.before);
  return settings;
}

std::string difference(const std::string& path, const std::string& was, const std::string& is) {
  return format("{} (was {}, is {})", path, was, is);
}

}  // namespace

PastConfig read_past_config(const std::string& text, const std::string& file_name) {
  return PastReader(*parse_yaml(text, file_name)).take();
}

void take_over(const PastConfig& then, Settings& now) {
  if (then.settings.task.name != now.task.name) return;
  auto resolved = as_before(then.settings);
  for (const Key& key : keys())
    if (is_left_open(key, now)) put_text(key, now, text_of(key, resolved));
}

std::vector<std::string> differences(const PastConfig& then, const Settings& asked) {
  std::map<std::string, std::string> found;  // in the order of their names
  const auto before = as_before(then.settings), now = as_before(asked);
  for (const Key& key : keys())
    if (makes_another_run(key, before, now))
      found[key.path] = difference(key.path, value_text(key, before), value_text(key, now));
  for (const auto& [path, was] : then.foreign) {
    const Key* key = find_key(path);
    if (!is_about_the_place(path))
      found[path] = difference(path, was, key ? value_text(*key, now) : "not set");
  }
  std::vector<std::string> different;
  for (auto& [path, text] : found) different.push_back(std::move(text));
  return different;
}

}  // namespace lockstep::config
