#pragma once
// Whether a run that is resumed can have the bits of one that was never stopped.

#include "lockstep/checkpoint/tree.h"
#include "trainer/setup/setup.h"
#include "trainer/step/learner.h"

namespace lockstep::train {

/// Says what here is unlike where the checkpoint was written, and changes the bits from now on: libtorch, the
/// processor, the world, the threads of a rank. With train.exact: required that is an InputError, on all
/// ranks.
void compare_bits(const Setup& setup, const Tree& checkpoint, const Learner& learner);

/// The same of the ranks of this job among themselves, before the first step: their processors.
void compare_ranks(const Setup& setup);

}  // namespace lockstep::train
