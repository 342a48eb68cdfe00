#pragma once
// An exported file, read: its graph, what that takes and gives, and its tensors.

#include <string>
#include <string_view>

#include "lockstep/exported/compile.h"
#include "lockstep/exported/graph.h"
#include "lockstep/exported/signature.h"
#include "lockstep/exported/weights.h"

namespace lockstep::exported {

struct ExportedProgram {
  std::string path;
  std::string torch_version, schema;  // who wrote it, and in which form: "8.20"
  bool is_newer = false;              // than the forms that are known
  std::string digest;                 // of models/model.json
  at::DeviceType home = at::kCPU;     // what the model was exported on
  Graph graph;
  Signature signature;
  GraphCalls calls;
  Weights weights, constants;
};

/// InputError for what is not whole, or cannot be run here.
ExportedProgram read_program(const std::string& path);
/// From the text of models/model.json alone, without a tensor.
ExportedProgram read_program(std::string_view model_json, const std::string& path);

}  // namespace lockstep::exported
