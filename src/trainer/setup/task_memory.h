#pragma once
// What a task remembers of its training data, into a checkpoint and back: predict then needs no data, and
// eval no training set.

#include "lockstep/checkpoint/tree.h"
#include "trainer/setup/setup.h"

namespace lockstep::train {

/// For "lockstep.task" of a checkpoint; None where the task remembers nothing.
Tree remembered(const Setup& setup);

/// What the config leaves open and a run chooses (config/keys.h, Once) becomes what the checkpoint's run did.
void take_over_from(Settings& settings, const Tree& checkpoint);

/// Puts it back in place of the data. False where the checkpoint brings nothing, or another task's;
/// InputError where it is of another task.kind.
bool recall(Setup& setup, const Tree& checkpoint);

}  // namespace lockstep::train
