#include "trainer/config/numbers.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "lockstep/base/format.h"

namespace lockstep::config {
namespace {

constexpr double kLongest = 3650.0 * 24 * 3600 * 1000;  // ms; nanoseconds in an int64 still hold it

struct Unit {
  const char* name;
  double milliseconds;
};
constexpr std::array<Unit, 5> kUnits = {
    {{"d", 86'400e3}, {"h", 3'600e3}, {"m", 60e3}, {"s", 1e3}, {"ms", 1}}};

bool all_digits(const std::string& text) {
  return !text.empty() &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c); });
}

// from_chars knows no plus sign
std::string without_plus(const std::string& text) {
  return text.size() > 1 && text[0] == '+' && text[1] != '-' ? text.substr(1) : text;
}

template <class Number>
std::optional<Number> whole_text(const std::string& text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// the longest name first, because "m" begins "ms"
const Unit* unit_at(const std::string& text, size_t at) {
  const size_t end = text.find_first_not_of("dhms", at);
  const std::string name = text.substr(at, end == std::string::npos ? end : end - at);
  const auto found =
      std::find_if(kUnits.begin(), kUnits.end(), [&](const Unit& unit) { return name == unit.name; });
  return found == kUnits.end() ? nullptr : &*found;
}

std::optional<double> duration_parts(const std::string& text) {
  double total = 0;
  const Unit* last = nullptr;
  for (size_t at = 0; at < text.size();) {
    const size_t unit_start = text.find_first_not_of("0123456789.", at);
    if (unit_start == std::string::npos || unit_start == at) return std::nullopt;
    const auto count = parse_number(text.substr(at, unit_start - at));
    const Unit* unit = unit_at(text, unit_start);
    if (!count || !unit || (last && unit <= last)) return std::nullopt;
    total += *count * unit->milliseconds;
    last = unit;
    at = unit_start + std::string(unit->name).size();
  }
  return last ? std::optional(total) : std::nullopt;
}

}  // namespace

std::optional<int64_t> parse_int(const std::string& text) {
  const std::string plain = without_plus(text), digits = plain.starts_with("-") ? plain.substr(1) : plain;
  if (!all_digits(digits) || (digits.size() > 1 && digits[0] == '0')) return std::nullopt;
  return whole_text<int64_t>(plain);
}

std::optional<double> parse_number(const std::string& text) {
  // without this, from_chars would take inf and nan
  if (text.find_first_not_of("0123456789+-.eE") != std::string::npos) return std::nullopt;
  return whole_text<double>(without_plus(text));
}

std::optional<std::chrono::milliseconds> parse_duration(const std::string& text) {
  auto milliseconds = parse_number(text);
  if (milliseconds) *milliseconds *= 1000;
  if (!milliseconds) milliseconds = duration_parts(text);
  if (!milliseconds || *milliseconds < 0 || *milliseconds > kLongest) return std::nullopt;
  return std::chrono::milliseconds(std::llround(*milliseconds));
}

std::string duration_text(std::chrono::milliseconds duration) {
  const int64_t count = duration.count();
  if (count % 1000 != 0) return format("{}ms", count);
  if (count != 0 && count % 3'600'000 == 0) return format("{}h", count / 3'600'000);
  if (count != 0 && count % 600'000 == 0) return format("{}m", count / 60'000);
  return format("{}s", count / 1000);
}

}  // namespace lockstep::config
