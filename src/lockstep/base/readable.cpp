#include "lockstep/base/readable.h"

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::base {
namespace {

constexpr size_t kLongestLine = 2000, kHead = 1500, kTail = 300;

// the bytes of the character that begins here; 0 where none does
size_t length_at(std::string_view text, size_t at) {
  for (size_t length = 1; length <= 4 && at + length <= text.size(); ++length) {
    if (!invalid_utf8(text.substr(at, length))) return length;
  }
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

// never in the middle of a letter
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

}  // namespace lockstep::base
