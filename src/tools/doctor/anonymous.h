#pragma once
// A report that may be sent to others: what names people, machines, places and jobs is replaced by stand-ins,
// the same for the same thing wherever it stands.

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "tools/doctor/node/facts.h"

namespace lockstep::doctor {

/// What is to be hidden, by the stand-in's first word: "node" -> {"gadi-cpu-clx-0001", ...}.
using Secrets = std::map<std::string, std::vector<std::string>>;

/// What is shorter is not hidden: a single letter is everywhere.
inline constexpr size_t kShortestSecret = 2;

/// What this process knows of that is private: hosts of all ranks, the user, groups, accounts, job ids.
Secrets secrets_of(const Picture& picture, const std::map<std::string, std::string>& environment);

/// The JSON text with stand-ins in all its texts, and variables whose values say nothing to others left out.
std::string anonymous(const std::string& json, const Secrets& secrets);

}  // namespace lockstep::doctor
