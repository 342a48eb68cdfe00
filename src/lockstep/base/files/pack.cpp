#include "lockstep/base/files/pack.h"

#include <charconv>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"

namespace lockstep::base {
namespace {

constexpr const char* kInput = "input";
constexpr char kResult = 'R', kFailure = 'E';

[[noreturn]] void refuse_damaged() {
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
    if (code != std::errc() || colon == end || *colon != ':') refuse_damaged();
    if (size > static_cast<size_t>(end - colon - 1)) refuse_damaged();
    texts.emplace_back(colon + 1, size);
    at = colon + 1 + size;
  }
  return texts;
}

std::string pack_error(const std::exception& error) {
  auto json = to_json(fault_of(error));
  json[kInput] = exit_status(error) == kBadInput;
  return as_line(json);
}

void throw_packed_error(const std::string& packed) {
  auto fault = fault_in(packed);
  if (!fault) refuse_damaged();
  if (parse_json(packed).value(kInput, false)) throw InputError(std::move(*fault));
  throw Error(std::move(*fault));
}

std::string pack_outcome(const std::function<std::string()>& work) {
  try {
    return kResult + work();
  } catch (const std::exception& error) {
    return kFailure + pack_error(error);
  }
}

std::string unpack_outcome(const std::string& packed) {
  if (packed.empty() || (packed[0] != kResult && packed[0] != kFailure)) refuse_damaged();
  if (packed[0] == kFailure) throw_packed_error(packed.substr(1));
  return packed.substr(1);
}

}  // namespace lockstep::base
