#include "lockstep/base/text.h"

#include <algorithm>
#include <cctype>

#include "lockstep/base/format.h"
#include "lockstep/base/readable.h"

namespace lockstep::base {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return std::tolower(c); });
  return out;
}

// how many bytes follow a lead byte, or -1 when it cannot lead
int utf8_tail(unsigned char lead) {
  if (lead < 0x80) return 0;
  if (lead >= 0xC2 && lead <= 0xDF) return 1;
  if (lead >= 0xE0 && lead <= 0xEF) return 2;
  if (lead >= 0xF0 && lead <= 0xF4) return 3;
  return -1;
}

// overlong forms, surrogates and values past U+10FFFF show in the second byte
bool second_byte_fits(unsigned char lead, unsigned char second) {
  if (lead == 0xE0) return second >= 0xA0;
  if (lead == 0xED) return second <= 0x9F;
  if (lead == 0xF0) return second >= 0x90;
  if (lead == 0xF4) return second <= 0x8F;
  return true;
}

}  // namespace

size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::vector<size_t>> d(from.size() + 1, std::vector<size_t>(to.size() + 1));
  for (size_t i = 0; i <= from.size(); ++i) d[i][0] = i;
  for (size_t j = 0; j <= to.size(); ++j) d[0][j] = j;
  for (size_t i = 1; i <= from.size(); ++i) {
    for (size_t j = 1; j <= to.size(); ++j) {
      const size_t change = from[i - 1] == to[j - 1] ? 0 : 1;
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + change});
      const bool swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (swapped) d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[from.size()][to.size()];
}

constexpr size_t kLongestName = 200;  // a column's name may have megabytes

std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.empty() || word.size() > kLongestName) return std::nullopt;
  std::optional<std::string> best;
  size_t best_distance = std::max<size_t>(1, (word.size() + 1) / 3) + 1;  // from here on it is another word
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kLongestName) continue;
    const size_t distance = edit_distance(lower(word), lower(candidate));
    if (distance < best_distance && distance < candidate.size()) {
      best_distance = distance;
      best = candidate;
    }
  }
  if (best || word.size() < 4) return best;
  const auto longer = std::find_if(candidates.begin(), candidates.end(), [&](const std::string& candidate) {
    return candidate.size() <= kLongestName && lower(candidate).starts_with(lower(word));
  });
  return longer == candidates.end() ? best : std::optional(*longer);
}

std::string join(const std::vector<std::string>& parts, std::string_view between) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += between;
    out += parts[i];
  }
  return out;
}

std::optional<size_t> invalid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const int tail = utf8_tail(lead);
    if (tail < 0 || i + static_cast<size_t>(tail) >= text.size()) return i;
    for (int k = 1; k <= tail; ++k) {
      const auto byte = static_cast<unsigned char>(text[i + static_cast<size_t>(k)]);
      if ((byte & 0xC0) != 0x80 || (k == 1 && !second_byte_fits(lead, byte))) return i;
    }
    i += static_cast<size_t>(tail) + 1;
  }
  return std::nullopt;
}

std::string printable(std::string_view text, size_t limit) {
  std::string out;
  for (const char c : readable(text.substr(0, limit))) {
    out += c == '\n' || c == '\t' ? format("\\x{:02x}", static_cast<unsigned char>(c)) : std::string(1, c);
  }
  return text.size() > limit ? out + "..." : out;
}

}  // namespace lockstep::base
