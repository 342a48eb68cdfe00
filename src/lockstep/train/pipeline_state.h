#pragma once
// A pipeline's part of a checkpoint: its stages' tensors and optimiser states put together as the whole
// model's, and taken apart.

#include <vector>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/parallel/team.h"
#include "lockstep/train/stages.h"

namespace lockstep::train {

/// The whole model's state dict on stage 0; nothing of use elsewhere. Collective along the line.
Tree gather_state_dict(const Team& line, const Stages& stages, const Tree& own);

/// The optimiser's over the whole model's parameters, on stage 0. Collective along the line.
Tree gather_optimizer(const Team& line, const Stages& stages, const Tree& own);

/// A stage's share of an optimiser's state over the whole model. InputError where it is another model's.
Tree take_optimizer(int stage, const Stages& stages, const Tree& whole);

}  // namespace lockstep::train
