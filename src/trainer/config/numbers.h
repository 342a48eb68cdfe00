#pragma once
// Numbers and durations as a config writes them. Each has one way to be written.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace lockstep::config {

/// Decimal digits with an optional sign; no exponent, no leading zero. Nothing for other text, or too large.
std::optional<int64_t> parse_int(const std::string& text);

/// A finite decimal number, whatever the locale.
std::optional<double> parse_number(const std::string& text);

/// "90" or "1.5" (seconds), "250ms", "60s", "10m", "1h30m", "2d": larger units first, each once.
std::optional<std::chrono::milliseconds> parse_duration(const std::string& text);

/// The shortest text that parse_duration reads as the same.
std::string duration_text(std::chrono::milliseconds duration);

}  // namespace lockstep::config
