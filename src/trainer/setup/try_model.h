#pragma once
// What does not fit together is found out at the start: a model's first samples, its loss and its metrics.

#include "trainer/setup/setup.h"

namespace lockstep::train {

/// Shows a model of the task's, made for this alone, a few samples: the model that is trained stays
/// untouched, and the caller seeds the generator again. InputError where the model does not take them, or the
/// loss or the metrics do not take what it gives.
void try_model(const Setup& setup);

}  // namespace lockstep::train
