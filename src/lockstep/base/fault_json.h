#pragma once
// An error as JSON: as it travels between ranks, and to a program that started them.

#include <optional>
#include <string>

#include "lockstep/base/fault.h"
#include "lockstep/base/json.h"

namespace lockstep::base {

/// docs/errors.md lists the fields; `met_in` and `seen` only where there is something to tell.
nlohmann::ordered_json to_json(const Fault& fault);
/// Of one line. Nothing where it is no error; a field of another type is as if it were not there.
std::optional<Fault> fault_in(const std::string& json);

}  // namespace lockstep::base
