#pragma once
// `lockstep inspect` of a file of torch.export.save.

#include <nlohmann/json.hpp>
#include <string>

#include "lockstep/checkpoint/inspect.h"

namespace lockstep::model_check {

struct InspectedModel {
  checkpoint::InspectedFile file;  // its parameters and buffers
  std::string words;               // what it takes, gives and calls, a line each
  nlohmann::ordered_json facts;    // the same for programs
};

/// By its name.
bool is_exported_file(const std::string& path);

/// InputError for what load_exported() does not take.
InspectedModel inspect_exported(const std::string& path, const checkpoint::Digest& digest);

}  // namespace lockstep::model_check
