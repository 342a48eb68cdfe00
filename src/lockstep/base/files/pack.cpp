#include "lockstep/base/files/pack.h"

#include <charconv>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"

namespace lockstep::base {
namespace {

constexpr const char* kBadInputWord = "input";
constexpr size_t kErrorParts = 5;
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

// The words as they are, whatever their bytes; JSON is for the rest.
std::string pack_error(const std::exception& error) {
  auto fault = fault_of(error);
  const char* kind = exit_status(error) == kBadInput ? kBadInputWord : "";
  std::vector<std::string> parts = {kind, std::move(fault.what), std::move(fault.where),
                                    std::move(fault.hint)};
  parts.push_back(as_line(to_json(fault)));
  return pack_texts(parts);
}

void throw_packed_error(const std::string& packed) {
  const auto parts = unpack_texts(packed);
  auto fault = parts.size() == kErrorParts ? fault_in(parts[4]) : std::nullopt;
  if (!fault) refuse_damaged();
  fault->what = parts[1], fault->where = parts[2], fault->hint = parts[3];
  if (parts[0] == kBadInputWord) throw InputError(std::move(*fault));
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
