#pragma once
// Lines as wide as a terminal.

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::base {

/// How many letters the UTF-8 text has.
size_t letters(std::string_view text);

/// The text in lines of at most `width` letters, broken between words: what follows stands two blanks deeper
/// than its line began. A longer word keeps a line for itself; a width of 0 leaves all as it is.
std::string wrapped(std::string_view text, size_t width);

}  // namespace lockstep::base
