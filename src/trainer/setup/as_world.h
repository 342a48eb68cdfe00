#pragma once
// train.as_world: as many ranks as the config says, on as many processes as were started.

#include "trainer/setup/setup.h"

namespace lockstep::train {

/// With as_world the sums are those of CPUs also where the ranks compute on GPUs, of which several may share
/// one.
void choose_sums(Settings& settings);

/// Whether this process is to carry ranks instead of being one: train.as_world is another number than that of
/// the processes. InputError where what was begun cannot be kept to the bits on another number.
bool carries_ranks(const StartedJob& begun);

/// Starts the ranks of this process and returns the status to leave with. Collective.
int carry_ranks(StartedJob begun);

/// Of a rank; 0 = its share of the cores. With as_world it may not depend on what the processes were given,
/// where the rank trains.
int threads_of_rank(const TrainSettings& train, bool trained);

}  // namespace lockstep::train
