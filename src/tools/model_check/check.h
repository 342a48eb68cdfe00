#pragma once
// What a file of torch.export.save holds, that it runs, and whether it computes as Python.

#include <string>

namespace lockstep::model_check {

struct ModelCheck {
  std::string path, eval_path;  // the model, and as it was exported for evaluation; empty = the same
  std::string sample;           // what Python computed with it; empty = nothing to compare
  bool json = false;
};

/// Prints what it finds at once, or with `json` at the end, as one object. Returns the exit status:
/// kFailed where Python computed something else.
int check_model(const ModelCheck& asked);

}  // namespace lockstep::model_check
