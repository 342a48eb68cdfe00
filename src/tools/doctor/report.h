#pragma once
// The findings as text, as JSON, and as a report for others in which placeholders replace names, paths and
// addresses.

#include <map>
#include <string>
#include <vector>

#include "tools/doctor/facts.h"

namespace lockstep::doctor {

/// "ok       launcher    ...", below it what to do and the drawing. `tag` begins every line.
std::string as_text(const Finding& finding, const std::string& tag);
/// "14 ok, 1 warning, no failure, 2.3 s"
std::string summary(const Findings& findings, double seconds);
FindingLevel worst_of(const Findings& findings);
/// docs/reference/doctor.md has the schema.
std::string as_json(const Findings& findings, const Cluster& cluster, double seconds);

/// Private texts by the first word of their placeholder: "node" -> {"gadi-cpu-clx-0001", ...}.
using Secrets = std::map<std::string, std::vector<std::string>>;

/// What this process knows of: hosts of all ranks, the user, groups, accounts, job ids.
Secrets secrets_of(const Cluster& cluster, const std::map<std::string, std::string>& environment);

/// The JSON with placeholders: the same text has the same one everywhere. Of variables only counts and
/// settings of libraries stay.
std::string anonymous(const std::string& json, const Secrets& secrets);

}  // namespace lockstep::doctor
