#pragma once
// What eval mode changes in a graph that was exported in train mode: dropout and norms, as
// torch.nn.Module.eval() changes them.

#include "lockstep/exported/graph.h"

namespace lockstep::exported {

/// How many training flags of a node are on, and off.
struct Flags {
  int on = 0, off = 0;
};

/// Fills in what is different of the node then. `counts_batches`: it adds to a norm's number of batches.
Flags set_eval_mode(Node& node, bool counts_batches);

}  // namespace lockstep::exported
