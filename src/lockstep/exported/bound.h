#pragma once
// A program with the tensors it runs on, which a module of Python's names holds.

#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

#include "lockstep/exported/program.h"

namespace lockstep::exported {

struct Bound {
  ExportedProgram program;
  std::vector<at::Tensor>
      tensors;  ///< for each of the graph's inputs; undefined where the user gives a value
};

/// What a state_dict has besides the module's names, and what of them it lacks.
struct StateNames {
  std::vector<std::pair<std::string, std::string>> tied;  ///< second name, first name
  std::vector<std::string> unsaved;
};

/// Registers each parameter and buffer once, under the first of its names, in submodules as Python has them.
Bound bind(ExportedProgram program, torch::nn::Module& root, StateNames& names);

/// The same model's graph for evaluation, on the tensors that train; of its own it has constants alone.
/// InputError where it is another model.
Bound bind_like(ExportedProgram program, const Bound& train);

/// Constants go where the parameters went.
void move_constants(Bound& bound, at::Device device);

}  // namespace lockstep::exported
