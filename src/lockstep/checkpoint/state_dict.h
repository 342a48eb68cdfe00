#pragma once
// Reads and writes a module's parameters and buffers under Python's names.

#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/tree.h"

namespace lockstep {

/// For a module whose state_dict differs from its registered tensors: tied names and unsaved buffers.
class OwnStateDict {
 public:
  virtual ~OwnStateDict() = default;
  /// Second names of tensors that are registered once: {"head.weight", "embedding.weight"}.
  virtual const std::vector<std::pair<std::string, std::string>>& tied() const = 0;
  /// Buffers that are not in the state_dict (Python's persistent=False).
  virtual const std::vector<std::string>& unsaved() const = 0;
};

/// Returns {"conv1.weight": tensor, ...} in the order of Python's state_dict, with OwnStateDict's tied() and
/// without its unsaved(). Does not copy tensors.
Tree module_state_dict(const torch::nn::Module& module);

/// Finds the model's tensors in a file's content: a state_dict itself, or one under "model", "state_dict" or
/// "model_state_dict". Removes a `module.` prefix (DataParallel, DistributedDataParallel).
Tree find_state_dict(const Tree& file_content, const std::string& file);

/// Returns a line per tensor that is missing, unexpected, or of another shape or dtype; empty if none.
std::vector<std::string> state_dict_mismatches(const Tree& expected, const Tree& given);

/// Throws InputError with the first mismatches, if there are any.
void check_state_dict(const Tree& expected, const Tree& given, const std::string& file);

/// Copies the tensors into the module. Throws InputError with the first mismatching tensors, before changing
/// anything, if the state_dict belongs to another model.
void load_module_state_dict(torch::nn::Module& module, const Tree& state_dict, const std::string& file);

}  // namespace lockstep
