#pragma once
// A config's text to typed settings: every mistake is an InputError with file:line:column, the key and what
// to do.

#include <map>
#include <string>
#include <vector>

#include "trainer/config/settings.h"
#include "trainer/config/yaml.h"

namespace lockstep::config {

// A config as it was read: the settings, where each came from, and what is to be said of them.

/// Where a value came from.
struct Origin {
  enum Kind { by_default, file, set } kind = by_default;
  std::string text = "default";  // "default", "configs/mnist.yaml:3:12" or "--set"
};

struct Loaded {
  Settings settings;
  std::map<std::string, Origin> origins;  // one for every key, by its full path
  std::string text;                       // what was read
  std::vector<std::string> warnings;      // keys that are set and not used, ...
  std::map<std::string, YamlNode> named;  // what was read for the keys that name rows of open tables
};

/// Shared libraries that a config names (optim.name: ./lion.so): they bring rows of the open tables.
enum class Libraries {
  leave,  ///< unloaded: what they bring is taken as it is written, and touches no file
  load,
};

/// Reads the text, then each of `sets` ("optim.lr=0.1", later ones win), expands ${NAME} in paths from the
/// environment, loads the libraries that it names where that is asked for, resolves `default` words and
/// checks names against the tables and keys against each other.
Loaded load_settings(const std::string& text, const std::string& file_name,
                     const std::vector<std::string>& sets = {},
                     const std::map<std::string, std::string>& environment = {},
                     Libraries libraries = Libraries::leave);

/// What load_settings() left undone where it was to leave libraries: loads them, and judges again what
/// depends on their rows. `warnings` then holds those that are new.
void load_libraries(Loaded& loaded);

// ${NAME}, ${NAME:-default} and $$ in paths, in a default too. Nothing else is special, and no shell is
// asked.

/// `what` and `where` are for the error: the key, and its place in the file.
std::string expand(const std::string& text, const std::map<std::string, std::string>& environment,
                   const std::string& what, const std::string& where);

/// The text that expand() turns back into this one.
std::string unexpand(const std::string& text);

/// The names that the text mentions as ${NAME}, wherever they stand.
std::vector<std::string> names_in_braces(const std::string& text);

}  // namespace lockstep::config
