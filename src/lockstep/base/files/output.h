#pragma once
// Standard output: written at once, and what a full disk swallows is not forgotten.

#include <string>

namespace lockstep::output {

/// Writes all of the text; false where it, or what came before it, got lost.
bool print(const std::string& text);

/// A line of an answer, safe to show. What gets lost of it is check()'s to tell.
void line(const std::string& text);

/// Throws Error where something that was printed got lost. A reader that has left (| head) is no failure.
void check();

}  // namespace lockstep::output

namespace lockstep::base {

// Descriptors 0 to 2 are always open.

/// Opens /dev/null where standard input, output or error came closed: the next file to be opened would take
/// their number, and be written into by whoever prints. To be called first thing in main.
void open_standard_descriptors();

}  // namespace lockstep::base
