#pragma once
// Values of the JSON in an exported file: unions, names, numbers and torch's enumerations, each checked.

#include <c10/core/Device.h>
#include <c10/core/Layout.h>
#include <c10/core/MemoryFormat.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "lockstep/exported/archive.h"

namespace lockstep::exported {

using Json = nlohmann::json;

/// Why a file is not taken; whoever knows the file makes an InputError of it.
struct Refusal : std::runtime_error {
  explicit Refusal(const std::string& what, std::string advice = kExportAgain)
      : std::runtime_error(what), hint(std::move(advice)) {}
  std::string hint;
};

/// A union: the one field that is not null.
struct Field {
  const std::string& name;
  const Json& value;
};
Field only_field(const Json& json);

/// A name from the file, safe to print.
std::string shown(const std::string& name);

std::string text_at(const Json& json, const char* key);
/// A whole number and nothing else.
int64_t whole_number(const Json& json);
/// Also "Infinity", "-Infinity" and "NaN", which are no JSON numbers.
double number_of(const Json& json);
/// A size that is a number in the file, not a symbol.
int64_t fixed_size(const Json& json);

/// torch.export's own numbers, which are not c10's.
at::ScalarType scalar_type_of(const Json& json);
at::MemoryFormat memory_format_of(const Json& json);
at::Layout layout_of(const Json& json);
at::Device device_of(const Json& json);

}  // namespace lockstep::exported
