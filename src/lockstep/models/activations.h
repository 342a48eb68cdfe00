#pragma once
// What stands between BERT's two linear layers, by the names of Hugging Face's hidden_act.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace lockstep::models {

using Activation = at::Tensor (*)(const at::Tensor&);

/// nullptr where none has that name.
Activation find_activation(const std::string& name);
std::vector<std::string> activation_names();

}  // namespace lockstep::models
