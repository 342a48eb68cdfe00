#pragma once
// The table of keys. Reading, --set, the schema, the reference page and the resolved config are made from it.

#include <chrono>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/base/plugins/tables.h"
#include "trainer/config/settings.h"
#include "trainer/config/yaml.h"

namespace lockstep::config {

/// The field of the settings that a key fills.
using SettingsField =
    std::variant<bool*, int64_t*, double*, std::string*, std::chrono::milliseconds*, std::optional<double>*,
                 std::array<double, 2>*, std::vector<int64_t>*, std::vector<double>*,
                 std::vector<std::string>*, std::map<std::string, std::string>*, TrainMode*, SameBits*,
                 Precision*, ImageLayout*, KernelChoice*, Tf32*>;

/// A key that is read only under some values of another one.
struct Use {
  std::string selector;  // "optim.name"; empty = always used
  std::vector<std::string> values =
      {};  // of the selector; empty = those whose rows say that they read the key
};

/// What another value of a key means for a run that is resumed.
enum class About {
  training,  // with another value it is another run
  length,    // how long it goes on: with a larger one, or 0 for no end, it is the same run
  place,     // where it is started
};

/// For a text that the config may leave open: the run chooses it once and writes it into its config.yaml.
struct Once {
  std::string open = {};    // the value that leaves it open
  std::string before = {};  // what a run did whose config.yaml leaves it open; empty = there is no such text
};

struct Rules {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool above_min = false;                 // min itself is refused
  bool below_max = false;                 // max itself is refused
  std::vector<std::string> choices = {};  // of a text or a type of words; empty = free
  std::string table = {};                 // of a text that names a row of an open table: the kind of its rows
  bool path = false;                      // ${NAME} is expanded
  std::string word = {};                  // "default": taken in place of a number, resolved later
  Use use = {};
  About about = About::training;
  bool own_path = false;  // each rank's own: nodes may keep their files at different places
  Once once = {};
};

struct Key {
  std::string path;  // "optim.lr"
  SettingsField (*field)(Settings&);
  std::string help = {};
  Rules rules = {};

  std::string section() const { return path.substr(0, path.find('.')); }
  std::string name() const { return path.substr(path.find('.') + 1); }
};

/// Every key, section by section.
const std::vector<Key>& keys();
const Key* find_key(const std::string& path);
const std::vector<std::string>& sections();

/// The field to read; Key::field() returns pointers to write through.
SettingsField field_of(const Key& key, const Settings& settings);

/// A text or the word of a choice; empty for other types.
std::string text_of(const Key& key, const Settings& settings);

/// The rows that the key may name: the default first, then by name.
std::vector<std::string> row_names(const Key& key);

/// What a value must be, in words: "an integer of at least 1".
std::string expected(const Key& key);
std::string expected(const Key& key, SettingsField field);

/// The key or section that a word most likely means: a path, a key's name, a name from another framework
/// ("learning_rate"), or a similar spelling. Empty if nothing is near.
std::string nearest_path(const std::string& word);

/// "did you mean optim.lr? "; empty if nothing is near.
std::string did_you_mean(const std::string& path);

// The rows of the open tables that a config's settings choose, and which keys those rows read.

/// The keys that name a row of an open table: task.name, model.name, ...
const std::vector<const Key*>& selectors();

/// A selector's value; if it is empty, the default that the chosen rows define.
std::string chosen_name(const Settings& settings, const std::string& selector);

/// The row of that name; null if no table has it: a library that is not loaded, or a task's own model.
const TableRow* chosen_row(const Settings& settings, const std::string& selector);

/// Every chosen row that is known.
std::vector<const TableRow*> chosen_rows(const Settings& settings);

/// What the key's word or empty text stands for in the chosen rows; null if none of them says.
const std::string* chosen_default(const Settings& settings, const std::string& path);

/// Whether the row lists the key (`name` of its section) as one that it reads.
bool lists(const TableRow& row, const std::string& name);

/// Whether the key may be read; an unknown row may read anything.
bool may_be_used(const Key& key, const Settings& settings);

/// Whether the chosen row is known to read the key.
bool is_read(const std::string& path, const Settings& settings);

/// The names under a key's map ("options") that the chosen row does not read.
std::vector<std::string> unread_options(const Key& key, const Settings& settings);

/// The names under a key's map that no row knows, if the chosen row is built in and lists what it reads.
std::vector<std::string> unknown_options(const Key& key, const Settings& settings);

/// The values of its selector that read the key; empty if all do.
std::vector<std::string> readers(const Key& key);

// One value: from a node into the field of its key, and back to YAML (value.cpp).

/// Throws InputError when the node does not hold what the key expects. False when it held the key's word
/// ("default"), which leaves the field as it is by default.
bool read_value(const Key& key, const YamlNode& node, const std::map<std::string, std::string>& environment,
                Settings& settings);

/// The same for a key of another table, without the settings' defaults: its `field` is null.
void read_field(const Key& key, const YamlNode& node, SettingsField field);

/// Says that the node names no row of the key's table.
[[noreturn]] void refuse_row(const Key& key, const YamlNode& node);

/// The field as YAML that read_value() reads back to the same.
std::string value_text(const Key& key, const Settings& settings);

/// A text as a YAML scalar, quoted where any YAML reader could take it for something else.
std::string yaml_text(const std::string& text);

}  // namespace lockstep::config
