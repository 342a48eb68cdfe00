#pragma once
// JSON of other people's files: one that is nested too deeply is refused before it becomes values, because
// what copies, compares, prints and removes values calls itself for each level.

#include <nlohmann/json.hpp>

#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/error.h"

namespace lockstep::base {

constexpr int kDeepestJson = 100;

/// Do brackets stand in brackets no more than kDeepestJson deep? Of text that is no JSON it may say either.
bool is_shallow_json(std::string_view text);

/// The value, or a discarded one (which is no object, no list and no number) for text that is no JSON or too
/// deep.
template <class Json = nlohmann::json>
Json parse_json(std::string_view text) {
  return is_shallow_json(text) ? Json::parse(text.begin(), text.end(), nullptr, false)
                               : Json(Json::value_t::discarded);
}

/// On one line; bytes that are no UTF-8 are replaced.
template <class Json>
std::string as_line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

/// What a parser says is wrong, without the name and the number of its exception.
std::string what_is_wrong(const nlohmann::json::exception& error);

// An error as JSON: as it travels between ranks, and to a program that started them.

/// docs/reference/errors.md lists the fields; `met_in` and `seen` only where there is something to tell.
nlohmann::ordered_json to_json(const Fault& fault);
/// Of one line. Nothing where it is no error; a field of another type is as if it were not there.
std::optional<Fault> fault_in(const std::string& json);

}  // namespace lockstep::base
