#include "lockstep/base/text.h"

#include <algorithm>
#include <array>
#include <random>

#include "lockstep/base/format.h"

namespace lockstep::base {
namespace {

constexpr size_t kLongestLine = 2000, kHead = 1500, kTail = 300;

// The length of the character that begins here; 0 if there is none.
size_t length_at(std::string_view text, size_t at) {
  for (size_t length = 1; length <= 4 && at + length <= text.size(); ++length)
    if (!invalid_utf8(text.substr(at, length))) return length;
  return 0;
}

bool is_control(std::string_view letter) {
  const auto first = static_cast<unsigned char>(letter[0]);
  if (letter.size() == 1) return (first < 0x20 && first != '\n' && first != '\t') || first == 0x7F;
  if (letter.size() == 2) return first == 0xC2 && static_cast<unsigned char>(letter[1]) < 0xA0;  // C1
  const bool general = letter.starts_with("\xE2\x80") || letter.starts_with("\xE2\x81");
  if (letter.size() != 3 || !general) return false;
  const auto last = static_cast<unsigned char>(letter[2]);
  // U+2028 to U+202E are separators and directions, U+2066 to U+2069 directions
  return letter[1] == '\x80' ? last >= 0xA8 && last <= 0xAE : last >= 0xA6 && last <= 0xA9;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const size_t length = length_at(text, at);
    const auto letter = text.substr(at, length == 0 ? 1 : length);
    if (length > 0 && !is_control(letter)) {
      out += letter;
    } else {
      for (const char byte : letter) out += format("\\x{:02x}", static_cast<unsigned char>(byte));
    }
    at += letter.size();
  }
  return out;
}

// Never in the middle of a character.
size_t letter_start(std::string_view text, size_t at) {
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

std::string shortened(std::string_view line) {
  if (line.size() <= kLongestLine) return std::string(line);
  const auto head = line.substr(0, letter_start(line, kHead));
  const auto tail = line.substr(letter_start(line, line.size() - kTail));
  return format("{} ... ({} bytes) ... {}", head, line.size(), tail);
}

}  // namespace

std::string readable(std::string_view text) {
  std::string out;
  while (true) {
    const size_t end = text.find('\n');
    out += escaped(shortened(text.substr(0, end)));
    if (end == text.npos) return out;
    out += '\n';
    text.remove_prefix(end + 1);
  }
}

namespace {

constexpr size_t kDeeper = 2;
constexpr size_t kNarrowest = 20;  // below this, lines are not broken

std::string wrapped_line(std::string_view line, size_t width) {
  const auto indent = std::min(line.find_first_not_of(' '), line.size());
  const std::string deeper = "\n" + std::string(indent + kDeeper, ' ');
  std::string text(line.substr(0, indent));
  size_t used = indent;
  for (size_t at = indent; at < line.size();) {
    const auto end = std::min(line.find(' ', at), line.size());
    const auto next = std::min(line.find_first_not_of(' ', end), line.size());
    const auto word = line.substr(at, end - at);
    if (at > indent && used + letters(word) > width) {
      text.erase(text.find_last_not_of(' ') + 1);
      text += deeper;
      used = indent + kDeeper;
    }
    text += line.substr(at, next - at);
    used += letters(word) + (next - end);
    at = next;
  }
  return text;
}

}  // namespace

size_t letters(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char byte) { return (static_cast<unsigned char>(byte) & 0xC0) != 0x80; }));
}

std::string wrapped(std::string_view text, size_t width) {
  if (width < kNarrowest) return std::string(text);
  std::string out;
  for (size_t at = 0; at <= text.size();) {
    const auto end = std::min(text.find('\n', at), text.size());
    const auto line = text.substr(at, end - at);
    out += letters(line) > width ? wrapped_line(line, width) : std::string(line);
    if (end < text.size()) out += '\n';
    at = end + 1;
  }
  return out;
}

std::string with_style(const std::string& text, TextStyle style) {
  static constexpr std::array<const char*, 6> kCodes = {"",        "\x1b[32m", "\x1b[33m",
                                                        "\x1b[1m", "\x1b[2m",  "\x1b[31m"};
  if (style == TextStyle::plain) return text;
  return kCodes[static_cast<size_t>(style)] + text + "\x1b[0m";
}

namespace {

// The number of bytes after a lead byte, or -1 if it is not one.
int utf8_tail(unsigned char lead) {
  if (lead < 0x80) return 0;
  if (lead >= 0xC2 && lead <= 0xDF) return 1;
  if (lead >= 0xE0 && lead <= 0xEF) return 2;
  if (lead >= 0xF0 && lead <= 0xF4) return 3;
  return -1;
}

// The second byte shows overlong forms, surrogates and values above U+10FFFF.
bool second_byte_fits(unsigned char lead, unsigned char second) {
  if (lead == 0xE0) return second >= 0xA0;
  if (lead == 0xED) return second <= 0x9F;
  if (lead == 0xF0) return second >= 0x90;
  if (lead == 0xF4) return second <= 0x8F;
  return true;
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return lower;
}

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

constexpr size_t kLongestName = 200;  // the name of a column may have megabytes

std::optional<std::string> nearest(std::string_view word, const std::vector<std::string>& candidates) {
  if (word.empty() || word.size() > kLongestName) return std::nullopt;
  std::optional<std::string> best;
  size_t best_distance =
      std::max<size_t>(1, (word.size() + 1) / 3) + 1;  // at this distance it is another word
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kLongestName) continue;
    const size_t distance = edit_distance(lower_case(word), lower_case(candidate));
    if (distance < best_distance && distance < candidate.size()) {
      best_distance = distance;
      best = candidate;
    }
  }
  if (best || word.size() < 4) return best;
  const auto longer = std::find_if(candidates.begin(), candidates.end(), [&](const std::string& candidate) {
    return candidate.size() <= kLongestName && lower_case(candidate).starts_with(lower_case(word));
  });
  return longer == candidates.end() ? best : std::optional(*longer);
}

std::string did_you_mean(std::string_view meant) {
  return meant.empty() ? "" : format("did you mean {}? Otherwise, ", meant);
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates,
                         std::string_view otherwise) {
  const auto near = nearest(word, candidates);
  return near ? format("did you mean {}?", *near) : std::string(otherwise);
}

std::string counted(long long number, std::string_view what) {
  return format("{} {}{}", number, what, number == 1 ? "" : "s");
}

std::string join(const std::vector<std::string>& parts, std::string_view between) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (i > 0) out += between;
    out += parts[i];
  }
  return out;
}

std::string listed(const std::vector<std::string>& first, size_t count) {
  const size_t named = std::min(count, kNamedRanks);
  std::string text;
  for (size_t i = 0; i < named; ++i) {
    const bool last = i + 1 == count;
    text += i == 0 ? "" : last ? " and " : ", ";
    text += first[i];
  }
  if (count > named) text += format(" and {} more", count - named);
  return text;
}

std::string rank_list(const std::vector<int>& first, size_t count) {
  std::vector<std::string> names;
  for (const int rank : first) names.push_back(std::to_string(rank));
  return (count == 1 ? "rank " : "ranks ") + listed(names, count);
}

std::string rank_list(const std::vector<int>& ranks) {
  return rank_list(ranks, ranks.size());
}

std::string random_word() {
  std::random_device device;
  return format("{:08x}{:08x}{:08x}{:08x}", device(), device(), device(), device());
}

std::string in_seconds(std::chrono::milliseconds time) {
  return format("{} s", time.count() / 1000.0);
}

std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
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
