#pragma once
// What a compiler says of a learner's file, short: the first errors, each with its line, and no novel of
// templates.

#include <string>

namespace lockstep::workshop {

/// At most a dozen lines of what it printed: errors before anything else, `source` by its name alone.
std::string compiler_words(const std::string& printed, const std::string& source);

}  // namespace lockstep::workshop
