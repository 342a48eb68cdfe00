#pragma once
// A config's text to typed settings: every mistake is an InputError with file:line:column, the key and what
// to do.

#include <map>
#include <string>
#include <vector>

#include "trainer/config/loaded.h"

namespace lockstep::config {

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

}  // namespace lockstep::config
