#pragma once
// How libtorch computes on a GPU, for the whole process: TF32, cuDNN's choice of algorithms, the same bits
// each time.

#include "trainer/config/settings.h"

namespace lockstep::train {

/// As train.tf32, train.cudnn_benchmark and train.deterministic say. Before the first computation.
void choose_arithmetic(const TrainSettings& train);

}  // namespace lockstep::train
