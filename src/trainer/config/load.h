#pragma once
// A config's text to typed settings: every mistake is an InputError with file:line:column, the key and what
// to do.

#include <map>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
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

// What no single key can say: keys against each other, keys that nothing reads.

/// Replaces `default` by what the chosen rows say it stands for.
void resolve(Loaded& loaded);

/// Throws InputError where two keys cannot both be.
void check_together(const Loaded& loaded);

/// The same of the table of conflicts alone: for settings that were changed since.
void check_conflicts(const Loaded& loaded);

/// A warning for each key that was set and that the chosen optimiser, schedule, task or mode does not read.
void warn_unused(Loaded& loaded);

/// A key that has one of some values.
struct Choice {
  const char* key;
  const char* value;  // in words: "above 1", "fp16"; empty: true, or anything at all
  bool (*is_made)(const Settings&);
};

struct Conflict {
  Choice one, other;
  const char* why;
  const char* hint;
};

/// The table of choices that exclude each other; docs/reference/config.md shows it.
const std::vector<Conflict>& conflicts();

/// The mistakes of one config, gathered so that a person fixes them in one go.
class Mistakes {
 public:
  /// Does the work, and keeps the error that it ends with.
  template <class Work>
  void gather(const Work& work) {
    try {
      work();
    } catch (const InputError& error) {
      found_.push_back(error);
    }
  }

  /// Throws where there were any: the one as it was, or one error that lists them all.
  void refuse() const;

 private:
  std::vector<InputError> found_;
};

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
