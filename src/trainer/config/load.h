#pragma once
// Reads a config's text. Every mistake is an InputError with file:line:column, the key and what to do.

#include <map>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "trainer/config/settings.h"
#include "trainer/config/yaml.h"

namespace lockstep::config {

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

/// Shared libraries that a config names (optim.name: ./lion.so), which add rows to the open tables.
enum class Libraries {
  leave,  ///< unloaded: their keys are taken as written, without reading a file
  load,
};

/// Reads the text, then each of `sets` ("optim.lr=0.1", later ones win), expands ${NAME} in paths, resolves
/// `default` and checks names against the tables and keys against each other.
Loaded load_settings(const std::string& text, const std::string& file_name,
                     const std::vector<std::string>& sets = {},
                     const std::map<std::string, std::string>& environment = {},
                     Libraries libraries = Libraries::leave);

/// After load_settings() with Libraries::leave: loads them and checks what depends on their rows. `warnings`
/// then holds only the new ones.
void load_libraries(Loaded& loaded);

/// Replaces `default` by the chosen rows' value.
void resolve(Loaded& loaded);

/// Throws InputError if keys contradict each other.
void check_together(const Loaded& loaded);

/// Only the table of conflicts, for settings that were changed since.
void check_conflicts(const Loaded& loaded);

/// A warning for each key that was set and that the chosen optimizer, schedule, task or mode does not read.
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
  /// Does the work, and keeps its InputError.
  template <class Work>
  void gather(const Work& work) {
    try {
      work();
    } catch (const InputError& error) {
      found_.push_back(error);
    }
  }

  /// Throws the one mistake, or one error that lists all of them.
  void refuse() const;

 private:
  std::vector<InputError> found_;
};

// ${NAME}, ${NAME:-default} and $$ in paths and in defaults. Nothing else is special.

/// `what` and `where` are for the error: the key, and its place in the file.
std::string expand(const std::string& text, const std::map<std::string, std::string>& environment,
                   const std::string& what, const std::string& where);

/// The text that expand() turns back into this one.
std::string unexpand(const std::string& text);

/// The names that the text mentions as ${NAME}, wherever they stand.
std::vector<std::string> names_in_braces(const std::string& text);

// The config.yaml that a run left, whichever lockstep wrote it, and what makes another run of it.

struct PastConfig {
  Settings settings;  // a key that the lockstep of that day did not know is as by default now
  /// Keys that this lockstep does not know, and their values.
  std::map<std::string, std::string> foreign = {};
};

/// Throws InputError where the text is no config at all.
PastConfig read_past_config(const std::string& text, const std::string& file_name);

/// What `now` leaves open (keys.h, Once) becomes what the run of `then` chose, where both are of one task.
void take_over(const PastConfig& then, Settings& now);

/// The keys that make `now` another run than `then`, as "optim.lr (was 0.01, is 0.1)". The place of a run and
/// a larger length do not count.
std::vector<std::string> differences(const PastConfig& then, const Settings& now);

}  // namespace lockstep::config
