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

}  // namespace lockstep::base
