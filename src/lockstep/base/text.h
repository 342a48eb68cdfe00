#pragma once
// Small helpers for text: nearest names for "did you mean", joining, UTF-8.

#include <charconv>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace lockstep::base {

/// Only ASCII letters change, in any locale.
std::string lower_case(std::string_view text);

/// The number of single-character edits between two words; a swap of neighbors counts as one.
size_t edit_distance(std::string_view from, std::string_view to);

/// The candidate that the user most likely meant, or nullopt. Ignores case.
std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates);

/// "did you mean X? " for what the user most likely meant, to put before a hint; "" if that is empty.
std::string did_you_mean(std::string_view meant);
/// "did you mean X?" for the nearest candidate; `otherwise` if there is none.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates,
                         std::string_view otherwise = "");

std::string join(const std::vector<std::string>& parts, std::string_view between);

/// Messages name this many ranks and count the rest.
constexpr size_t kNamedRanks = 8;
/// "a, b and c", of `count` items; "…, h and 12 more" beyond kNamedRanks. `first` has all of them or more
/// than kNamedRanks.
std::string listed(const std::vector<std::string>& first, size_t count);
/// "ranks 2, 3 and 5", in the same way.
std::string rank_list(const std::vector<int>& first, size_t count);
std::string rank_list(const std::vector<int>& ranks);
/// 32 random hexadecimal digits.
std::string random_word();
/// "1.5 s"
std::string in_seconds(std::chrono::milliseconds time);
/// "3 ranks", "1 rank"
std::string counted(long long number, std::string_view what);
/// A field of a CSV line, in quotes if it needs them.
std::string csv_field(const std::string& text);

/// The position of the first byte that is not valid UTF-8, or nullopt.
std::optional<size_t> invalid_utf8(std::string_view text);

/// The text with control characters as \xNN, truncated to `limit` bytes: safe to print in an error.
std::string printable(std::string_view text, size_t limit = 80);

inline constexpr size_t kLongestPath = 4096;  ///< printable()'s limit for a path

/// The number that is the whole text, as C++ writes it; nullopt for any other text, or if it is out of range.
template <class Number = int>
std::optional<Number> parse_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

/// The number of characters of a UTF-8 text.
size_t letters(std::string_view text);

/// The text in lines of at most `width` characters, broken between words, with continuation lines indented by
/// two more blanks. A longer word has a line of its own; a width of 0 changes nothing.
std::string wrapped(std::string_view text, size_t width);

/// Untrusted text, safe to print: control codes for a terminal (escape codes, C1, text direction) and invalid
/// UTF-8 become \xNN, and the middle of a very long line is left out. Keeps lines and tabs.
std::string readable(std::string_view text);

enum class TextStyle { plain, good, bad, strong, faint, wrong };

/// The text with the terminal codes of this style.
std::string with_style(const std::string& text, TextStyle style);

}  // namespace lockstep::base
