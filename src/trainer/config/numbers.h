#pragma once
// Numbers and durations as a config writes them: one plain reading each, and a hint for the ways that are not
// read.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::config {

/// Decimal digits with an optional sign; no exponent, no leading zero. Nothing when it is not that or too
/// large.
std::optional<int64_t> parse_int(const std::string& text);

/// A finite decimal number, whatever the locale.
std::optional<double> parse_number(const std::string& text);

/// "90" or "1.5" (seconds), "250ms", "60s", "10m", "1h30m", "2d": larger units first, each once, up to ten
/// years.
std::optional<std::chrono::milliseconds> parse_duration(const std::string& text);

/// The shortest text that parse_duration reads as the same.
std::string duration_text(std::chrono::milliseconds duration);

/// How to write what was probably meant: 0x10, 010, 1e3 and 1_000 where a whole number stands, yes and on for
/// true. Empty when nothing is known.
std::string number_hint(const std::string& text);
std::string bool_hint(const std::string& text);

}  // namespace lockstep::config
