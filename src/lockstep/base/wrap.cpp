#include "lockstep/base/wrap.h"

#include <algorithm>

namespace lockstep::base {
namespace {

constexpr size_t kDeeper = 2;
constexpr size_t kNarrowest = 20;  // of a terminal that is worth the trouble

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

}  // namespace lockstep::base
