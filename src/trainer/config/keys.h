#pragma once
// The table of keys: one row each, from which reading, --set, the schema, the reference page and the resolved
// config are all made. What is in the open tables (base/plugins/tables.h) it asks them.

#include <chrono>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lockstep/base/plugins/tables.h"
#include "trainer/config/settings.h"

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

/// What a key's value says of a run.
enum class About {
  training,  // with another value it is another run
  length,    // how long it goes on: with a larger one, or 0 for no end, it is the same run
  place,     // where it is started
};

/// Of a text that a run chooses once where the config leaves it open, and writes into its config.yaml.
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
  std::string help;
  Rules rules = {};

  std::string section() const { return path.substr(0, path.find('.')); }
  std::string name() const { return path.substr(path.find('.') + 1); }
};

/// Every key, section by section.
const std::vector<Key>& keys();
const Key* find_key(const std::string& path);
const std::vector<std::string>& sections();

/// The field to look at: a key's field() hands out pointers to write through.
SettingsField field_of(const Key& key, const Settings& settings);

/// The text that it holds, or the word of its type; empty of anything else.
std::string text_of(const Key& key, const Settings& settings);

/// The rows that a text of an open table may name: the default first, then by name.
std::vector<std::string> row_names(const Key& key);

/// What a value must be, in words: "a whole number of at least 1".
std::string expected(const Key& key);

/// The key, or the section, that a word most likely means: a path, the name of a key in whatever section, a
/// name from another framework ("learning_rate"), or what is spelled like one of these. Empty where nothing
/// is near.
std::string nearest_path(const std::string& word);

/// "did you mean optim.lr? "; empty where nothing is near.
std::string did_you_mean(const std::string& path);

// The rows of the open tables that a config's settings choose, and which keys those rows read.

/// The keys that name a row of an open table: task.name, model.name, ...
const std::vector<const Key*>& selectors();

/// What a selector says; where it is empty, what the chosen rows say that it stands for.
std::string chosen_name(const Settings& settings, const std::string& selector);

/// The row of that name; nullptr where no table knows it: a library that is not loaded, or a task's own
/// model.
const TableRow* chosen_row(const Settings& settings, const std::string& selector);

/// Every chosen row that is known.
std::vector<const TableRow*> chosen_rows(const Settings& settings);

/// The word's or the empty text's meaning by the rows chosen; nullptr where none of them says.
const std::string* chosen_default(const Settings& settings, const std::string& path);

/// Does the row say that it reads the key (`name` of its section)? One that reads "*" says nothing.
bool lists(const TableRow& row, const std::string& name);

/// Is the key read, or may it be? A row that is not known may read anything.
bool may_be_used(const Key& key, const Settings& settings);

/// Is the key read by a row that is known to?
bool is_read(const std::string& path, const Settings& settings);

/// The names under a key's map ("options") that the chosen row does not read.
std::vector<std::string> unread_options(const Key& key, const Settings& settings);

/// The names under a key's map that no row of the table knows, where the chosen one says what it reads and is
/// the program's own.
std::vector<std::string> unknown_options(const Key& key, const Settings& settings);

/// The values of its selector that read the key; empty where all do.
std::vector<std::string> readers(const Key& key);

}  // namespace lockstep::config
