#pragma once
// Small helpers for text: nearest names for "did you mean", joining, UTF-8.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::base {

/// How many single-character edits (a swap of neighbours counts as one) lead from one word to the other.
size_t edit_distance(std::string_view from, std::string_view to);

/// The candidate that a person most likely meant, or nothing when none is near. Case does not matter.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates);

std::string join(const std::vector<std::string>& parts, std::string_view between);

/// Where the first byte is that is not well-formed UTF-8, or nothing.
std::optional<size_t> invalid_utf8(std::string_view text);

/// The text with control characters as \xNN, and cut after `limit` bytes: safe to print in an error.
std::string printable(std::string_view text, size_t limit = 80);

inline constexpr size_t kLongestPath = 4096;  ///< printable()'s limit for a path

// Lines as wide as a terminal.

/// How many letters the UTF-8 text has.
size_t letters(std::string_view text);

/// The text in lines of at most `width` letters, broken between words: what follows stands two blanks deeper
/// than its line began. A longer word keeps a line for itself; a width of 0 leaves all as it is.
std::string wrapped(std::string_view text, size_t width);

// Text that was made elsewhere, safe to put before a person: no terminal obeys it, and it has an end.

/// Lines and tabs stay, and every letter of valid UTF-8; what a terminal would obey (escape codes, the C1
/// controls, marks that turn the direction of writing) and what is no UTF-8 becomes \xNN. The middle of a
/// very long line is left out.
std::string readable(std::string_view text);

// Colours of text on a terminal. Whether there are any is for launch/terminal.h to say.

enum class TextStyle { plain, good, bad, strong, faint, wrong };

/// The text between the codes of this style; plain has none.
std::string with_style(const std::string& text, TextStyle style);

}  // namespace lockstep::base
