#pragma once
// The Python that exports a model, for its reader's own.

#include <string>
#include <vector>

namespace lockstep::model_check {

struct TemplateOptions {
  std::vector<std::string> inputs;   // of forward, "float32:1x28x28"; none = that one
  std::string output = "model.pt2";  // the file that the script writes
  bool eval = false;                 // and a second one, for evaluation
  bool sample = false;               // and what Python computes with it
};

/// InputError for an input that is none.
std::string export_script(const TemplateOptions& asked);

}  // namespace lockstep::model_check
