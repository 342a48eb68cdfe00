#pragma once
// The operators of libtorch that an exported graph may call.

#include <ATen/core/dispatch/Dispatcher.h>

#include <string>

namespace lockstep::exported {

/// By the name in the file, "torch.ops.aten.linear.default". Refusal for one that is not libtorch's, that
/// this libtorch lacks, that is not in the list (operators.inc), or that has an out=.
c10::OperatorHandle find_operator(const std::string& target);

/// Does it draw random numbers whatever mode the model is in?
bool always_draws(const std::string& name);

}  // namespace lockstep::exported
