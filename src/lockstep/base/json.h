#pragma once
// JSON from files and messages. JSON that is nested too deeply is refused before parsing, because copying,
// comparing, printing and destroying values recurse once for each level.

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::base {

constexpr int kDeepestJson = 100;

/// Whether brackets are nested at most kDeepestJson deep; undefined for text that is not JSON.
bool is_shallow_json(std::string_view text);

/// The value, or a discarded one (not an object, list or number) for text that is no JSON or nested too deep.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text) {
  return is_shallow_json(text) ? Json::parse(text.begin(), text.end(), nullptr, false)
                               : Json(Json::value_t::discarded);
}

[[noreturn]] void refuse_other_version();

/// The value in a message from another rank. InputError if that rank runs another version of lockstep.
template <class Value>
Value from_rank(const std::string& text) {
  try {
    return parse_json(text).get<Value>();
  } catch (const nlohmann::json::exception&) {
    refuse_other_version();
  }
}

/// On one line; bytes that are not UTF-8 are replaced.
template <class Json>
std::string as_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// The same on several lines, with a line end.
template <class Json>
std::string as_lines(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// A parser's message without the name and number of its exception.
std::string what_is_wrong(const nlohmann::json::exception& error);

/// An error as JSON, for other ranks and for the program that started them. See docs/reference/errors.md.
nlohmann::ordered_json to_json(const Fault& fault);
/// nullopt if it is not an error; a field of another type counts as missing.
std::optional<Fault> fault_in(const std::string& json);

}  // namespace lockstep::base
