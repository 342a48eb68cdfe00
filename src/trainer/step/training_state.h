#pragma once
// Where a training stands: numbers that a checkpoint holds beside the model.

#include <cstdint>
#include <limits>

namespace lockstep::train {

/// Where a run stands. The numbers are the same on every rank, but for the losses.
struct TrainingState {
  int64_t step = 0;      // optimiser steps taken
  int64_t epoch = 0;     // the one it is in, from 0
  int64_t consumed = 0;  // samples of this epoch that all ranks together have taken
  int64_t step_in_epoch = 0;
  bool epoch_trained = false;  // every batch is done; evaluation and schedule are still to come
  double seconds = 0;          // trained, all attempts together
  int64_t metrics_offset = 0;
  double best_loss = std::numeric_limits<double>::infinity();  // early stop
  int64_t epochs_without_better = 0;
  double loss_sum = 0;  // of this epoch, this rank's own
  int64_t loss_count = 0;
};

}  // namespace lockstep::train
