#pragma once
// A module's parameters and buffers under Python's names, out of it and into it.

#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/checkpoint/tree.h"

namespace lockstep {

/// What a module's state_dict has besides its own names, and what of them it lacks.
class OwnStateDict {
 public:
  virtual ~OwnStateDict() = default;
  /// Second names of tensors that are registered once: {"head.weight", "embedding.weight"}.
  virtual const std::vector<std::pair<std::string, std::string>>& tied() const = 0;
  /// Buffers that no state_dict holds (Python's persistent=False).
  virtual const std::vector<std::string>& unsaved() const = 0;
};

/// {"conv1.weight": tensor, ...} in the order of Python's state_dict; of an OwnStateDict as that says.
/// Tensors are not copied.
Tree module_state_dict(const torch::nn::Module& module);

/// Finds the model's tensors in what a file held: a state_dict itself, or one under "model", "state_dict" or
/// "model_state_dict"; a `module.` prefix (DataParallel, DistributedDataParallel) is dropped.
Tree find_state_dict(const Tree& file_content, const std::string& file);

/// What does not fit, a line each: missing, unexpected, of another shape or dtype. Empty: the two agree.
std::vector<std::string> state_dict_mismatches(const Tree& expected, const Tree& given);

/// InputError that names the first mismatches, where there are any.
void check_state_dict(const Tree& expected, const Tree& given, const std::string& file);

/// Copies the tensors into the module. InputError that names the first mismatching tensors, before anything
/// is changed, where the state_dict is another model's.
void load_module_state_dict(torch::nn::Module& module, const Tree& state_dict, const std::string& file);

}  // namespace lockstep
