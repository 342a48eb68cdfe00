#pragma once
// What the stages of a pipeline hold, put together as the whole model's, and taken apart: tensors and
// optimiser states for a checkpoint, norms for clipping.

#include <vector>

#include "lockstep/checkpoint/tree.h"
#include "lockstep/parallel/team.h"
#include "trainer/modes/stages.h"

namespace lockstep::train {

/// The whole model's state dict on stage 0; nothing of use elsewhere. Collective along the line.
Tree gather_state_dict(const Team& line, const Stages& stages, const Tree& own);

/// The optimiser's over the whole model's parameters, on stage 0. Collective along the line.
Tree gather_optimizer(const Team& line, const Stages& stages, const Tree& own);

/// The norms of all stages' gradients, each at its place among the whole model's parameters, so that their
/// sum has the unsplit model's bits; `own` is undefined where there is no gradient. Collective along the
/// line.
at::Tensor gather_norms(const Team& line, const Stages& stages, const std::vector<at::Tensor>& own);

/// A stage's share of an optimiser's state over the whole model. InputError where it is another model's.
Tree take_optimizer(int stage, const Stages& stages, const Tree& whole);

}  // namespace lockstep::train
