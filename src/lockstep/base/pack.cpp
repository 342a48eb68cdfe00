#include "lockstep/base/pack.h"

#include <charconv>

#include "lockstep/base/format.h"

namespace lockstep::base {
namespace {

constexpr const char* kBadInputWord = "input";

[[noreturn]] void refuse() {
  throw Error("a message between ranks is damaged", "the exchange of texts",
              "start the same lockstep on every rank");
}

}  // namespace

std::string pack_texts(const std::vector<std::string>& texts) {
  std::string packed;
  for (const auto& text : texts) packed += format("{}:", text.size()) + text;
  return packed;
}

std::vector<std::string> unpack_texts(const std::string& packed) {
  std::vector<std::string> texts;
  const char* at = packed.data();
  const char* const end = at + packed.size();
  while (at < end) {
    size_t size = 0;
    const auto [colon, code] = std::from_chars(at, end, size);
    if (code != std::errc() || colon == end || *colon != ':') refuse();
    if (size > static_cast<size_t>(end - colon - 1)) refuse();
    texts.emplace_back(colon + 1, size);
    at = colon + 1 + size;
  }
  return texts;
}

std::string pack_error(const Error& error) {
  return pack_texts(
      {error.exit_status() == kBadInput ? kBadInputWord : "", error.what(), error.where(), error.hint()});
}

void throw_packed_error(const std::string& packed) {
  const auto parts = unpack_texts(packed);
  if (parts.size() != 4) refuse();
  if (parts[0] == kBadInputWord) throw InputError(parts[1], parts[2], parts[3]);
  throw Error(parts[1], parts[2], parts[3]);
}

}  // namespace lockstep::base
