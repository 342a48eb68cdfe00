#pragma once
// Files of torch.export.save: what one holds, whether it runs and computes as Python, how to write one.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lockstep/checkpoint/inspect.h"

namespace lockstep::model_check {

struct ModelCheck {
  std::string path, eval_path;  // the model, and as it was exported for evaluation; empty = the same
  std::string sample;           // what Python computed with it; empty = nothing to compare
  bool json = false;
};

/// `lockstep model check`: prints what it finds at once, or with `json` at the end, as one object. Returns
/// the exit status: kFailed where Python computed something else.
int check_model(const ModelCheck& asked);

struct TemplateOptions {
  std::vector<std::string> inputs;   // of forward, "float32:1x28x28"; none = that one
  std::string output = "model.pt2";  // the file that the script writes
  bool eval = false;                 // and a second one, for evaluation
  bool sample = false;               // and what Python computes with it
};

/// `lockstep model template`: the Python that exports a model. InputError for an input that is none.
std::string export_script(const TemplateOptions& asked);

struct InspectedModel {
  checkpoint::InspectedFile file;  // its parameters and buffers
  std::string words;               // what it takes, gives and calls, a line each
  nlohmann::ordered_json facts;    // the same for programs
};

/// `lockstep inspect` of such a file. InputError for what load_exported() does not take.
InspectedModel inspect_exported(const std::string& path, const checkpoint::Digest& digest);

}  // namespace lockstep::model_check
