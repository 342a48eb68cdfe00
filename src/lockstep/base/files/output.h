#pragma once
// Standard output: unbuffered, with errors remembered for check().

#include <string>

namespace lockstep::output {

/// Writes the text; false if it or earlier output could not be written.
bool print(const std::string& text);

/// Writes a line, made safe to show.
void line(const std::string& text);

/// Throws Error if some output could not be written. A closed pipe (| head) is not an error.
void check();

}  // namespace lockstep::output

namespace lockstep::base {

/// Opens /dev/null for a closed standard input, output or error; otherwise the next opened file would get its
/// number, and output would be written into it. Call it first in main.
void open_standard_descriptors();

}  // namespace lockstep::base
