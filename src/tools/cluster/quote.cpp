#include "tools/cluster/quote.h"

#include <algorithm>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::cluster {
namespace {

bool is_control(unsigned char byte) {
  return byte < 0x20 || byte == 0x7F;
}

bool is_plain(unsigned char byte) {
  static const std::string others = "_./:=,+-@%";
  return (byte < 0x80 && std::isalnum(byte)) || others.find(static_cast<char>(byte)) != std::string::npos;
}

// What is no UTF-8 may begin a letter with the byte behind it, in a job's locale: a quote would be none.
bool needs_escape(const std::string& text) {
  const auto is_special = [](unsigned char byte) { return is_control(byte) || byte == '\''; };
  return std::any_of(text.begin(), text.end(), is_special) || base::invalid_utf8(text);
}

// $'...': a line feed would else begin a line of the script, which a scheduler reads too
std::string with_escapes(const std::string& text) {
  const bool letters = !base::invalid_utf8(text);
  std::string word = "$'";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (is_control(byte) || (byte >= 0x80 && !letters))
      word += format("\\{:03o}", static_cast<unsigned>(byte));
    else if (c == '\'' || c == '\\')
      word += {'\\', c};
    else
      word += c;
  }
  return word + "'";
}

}  // namespace

std::string quoted(const std::string& text) {
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return text;
  if (needs_escape(text)) return with_escapes(text);
  return "'" + text + "'";
}

std::string quoted(const std::vector<std::string>& words) {
  std::string line;
  for (const auto& word : words) line += (line.empty() ? "" : " ") + quoted(word);
  return line;
}

}  // namespace lockstep::cluster
