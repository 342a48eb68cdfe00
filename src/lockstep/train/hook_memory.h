#pragma once
// What a communication hook keeps from step to step, in a checkpoint: PowerSGD's errors, a user's own.

#include <string>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/parallel/team.h"

namespace lockstep {
class DdpCore;
}

namespace lockstep::train {

/// "comm_hook", with every rank's part, where a hook keeps something. `core` is null on a rank whose
/// gradients do not travel; `layout` says how the ranks share the model. Collective; the whole is on rank 0.
void put_hook_memory(const Team& team, const DdpCore* core, const std::string& layout, const Tree& dict);
/// This rank's, where every rank finds its own; else all begin afresh, and that is said. Collective.
void restore_hook_memory(const Team& team, const DdpCore* core, const std::string& layout, const Tree& dict);

}  // namespace lockstep::train
