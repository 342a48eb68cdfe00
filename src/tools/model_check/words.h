#pragma once
// What `lockstep model check` says, to people and to programs.

#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/models/exported.h"
#include "tools/model_check/sample.h"
#include "tools/model_check/trial.h"

namespace lockstep::model_check {

using OrderedJson = nlohmann::ordered_json;

/// A line each, as a person reads them.
std::string facts_words(const ExportedNet& net, const std::string& path);
std::string pass_words(const char* mode, const Reached& reached);
std::string comparison_words(const Comparison& comparison, const std::string& sample);

OrderedJson facts_json(const ExportedNet& net, const std::string& path);
OrderedJson comparison_json(const Comparison& comparison, const std::string& sample);

}  // namespace lockstep::model_check
