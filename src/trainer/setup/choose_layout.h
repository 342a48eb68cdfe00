#pragma once
// train.layout: auto — the quicker of the two for this model, these samples and these processors.

#include "trainer/setup/setup.h"

namespace lockstep::train {

/// Where train.layout is auto: puts the layout into the settings and the config in which all ranks together
/// take less time for a forward and a backward of one batch, and says what was measured. Samples without
/// height and width, and grids of ranks, have nchw unmeasured. After the data is there. Collective.
void settle_layout(Setup& setup);

}  // namespace lockstep::train
