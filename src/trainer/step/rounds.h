#pragma once
// How many batches and steps an epoch and a run have, and how batches are made: the same sums everywhere.

#include <cstdint>

#include "lockstep/data/loader.h"
#include "trainer/config/settings.h"

namespace lockstep::train {

struct Rounds {
  int64_t samples = 0;          // a rank's, an epoch
  int64_t batches = 0;          // a rank's, an epoch
  int64_t steps_per_epoch = 0;  // optimiser steps
  int64_t total_steps = 0;      // of the whole run
  int64_t step_samples = 0;     // of all ranks together, a full step
};

/// Throws InputError where there is nothing to train on.
Rounds plan_rounds(const Settings& settings, int64_t samples, int world);

LoaderOptions loader_options(const Settings& settings, at::Device device);

/// Python's DataLoader draws its workers' seed from the default generator at the start of each pass; a model
/// with dropout has Python's bits only if the same number is drawn here.
void draw_base_seed();

}  // namespace lockstep::train
