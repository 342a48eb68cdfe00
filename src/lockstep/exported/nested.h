#pragma once
// The nodes that hold graphs of their own.

#include "lockstep/exported/run.h"

namespace lockstep::exported {

/// `values`: the node's arguments; lists among them are taken apart.
std::vector<c10::IValue> run_nested(const Node& node, std::vector<c10::IValue> values, const GraphMode& way);

/// torch.cond under autograd: what the branch that was taken does not use gets a gradient of zeros, as in
/// Python.
std::vector<c10::IValue> run_branch(const Graph& branch, std::vector<c10::IValue> operands,
                                    const GraphMode& way);

}  // namespace lockstep::exported
