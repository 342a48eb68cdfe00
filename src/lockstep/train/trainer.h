#pragma once
// Epochs, steps, evaluation, checkpoints and stops, in the order in which the plain Python program has them.

#include <memory>
#include <optional>
#include <string>

#include "lockstep/run_folder/request.h"
#include "lockstep/train/checkpoints.h"
#include "lockstep/train/feed.h"
#include "lockstep/train/learner.h"
#include "lockstep/train/loss_trace.h"
#include "lockstep/train/provoke.h"
#include "lockstep/train/run_facts.h"
#include "lockstep/train/run_log.h"
#include "lockstep/train/setup.h"
#include "lockstep/train/step.h"
#include "lockstep/train/trace_keeper.h"
#include "lockstep/train/training_state.h"
#include "lockstep/train/watch.h"

namespace lockstep::train {

/// What a run goes on from, where it writes, and when it must have left.
struct Start {
  TrainingState state = {};  // that the learner is in
  Attempt attempt = {};
  Watch::Deadline deadline = {};  // rank 0's
};

class Trainer {
 public:
  /// Rank 0 opens the folder's files. Not collective, so that an error there can be shared.
  Trainer(const Setup& setup, Learner learner, const Start& start);

  /// Collective.
  Ending run();

  /// What the run's folder says of it from now on; rank 0's.
  void tell(run_folder::RunState now, const std::string& reason);

 private:
  void train_epoch();
  void take_steps();
  void end_epoch();
  void end_inside_epoch();
  void compare_norms();
  bool is_last_epoch() const;
  Measured measure();
  Measured evaluate_now();
  std::optional<double> lost_reward() const;
  void checkpoint_from_before(const at::Tensor& generator);
  double mean_train_loss();
  void look_at_goal();

  const Setup& setup_;
  Learner learner_;
  TrainingState state_;
  LossTrace losses_;
  Feed feed_;
  TrainingStep step_;
  Provocation provocation_;
  std::optional<run_folder::Requests> requests_;  // rank 0's
  RunLog log_;
  TraceKeeper trace_;
  RunFacts facts_;
  Checkpoints checkpoints_;
  Watch watch_;
  bool norms_compared_ = false;
  bool evaluation_is_long_ = true;  // until one has shown how long it takes
};

}  // namespace lockstep::train
