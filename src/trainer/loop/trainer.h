#pragma once
// Epochs, steps, evaluation, checkpoints and stops, in the order in which the plain Python program has them.

#include <memory>
#include <optional>
#include <string>

#include "lockstep/launch/process/alarm.h"
#include "lockstep/tasks/metrics.h"
#include "trainer/loop/checkpoints.h"
#include "trainer/loop/run_log.h"
#include "trainer/loop/watch.h"
#include "trainer/observe/loss_trace.h"
#include "trainer/observe/phase_clock.h"
#include "trainer/observe/trace.h"
#include "trainer/provoke/provoke.h"
#include "trainer/run_folder/status.h"
#include "trainer/setup/setup.h"
#include "trainer/step/feed.h"
#include "trainer/step/step.h"

namespace lockstep::train {

/// What a run starts from, where it writes, and when it must end.
struct Start {
  TrainingState state = {};  // that the learner is in
  RunAttempt attempt = {};
  RunWatch::Deadline deadline = {};  // rank 0's
};

class Trainer {
 public:
  /// Rank 0 opens the folder's files. Not collective, so that an error there can be shared.
  Trainer(const Setup& setup, Learner learner, const Start& start);

  /// Collective.
  RunEnding run();

  /// Writes the state into the run's folder, on rank 0.
  void tell(run_folder::RunState now, const std::string& reason);

 private:
  void train_epoch();
  void take_steps();
  void end_epoch();
  void end_inside_epoch();
  void watch_captured_steps();
  void compare_norms();
  void warn_of_untrained();
  bool is_last_epoch() const;
  EpochMetrics measure();
  EpochMetrics evaluate_now();
  void checkpoint_from_before(const at::Tensor& generator);
  double mean_train_loss();
  double shown(double train_loss) const;
  void check_goal();

  const Setup& setup_;
  Learner learner_;
  TrainingState state_;
  LossTrace losses_;
  Feed feed_;
  TrainingStep step_;
  std::unique_ptr<run_folder::Requests> requests_;  // rank 0's
  RunLog log_;
  TraceKeeper trace_;
  RunFacts facts_;
  Checkpoints checkpoints_;
  RunWatch watch_;
  std::unique_ptr<launch::StallWatch> stall_;  // of captured steps at several ranks
  const InjectedFault* fault_;                 // null without train.provoke
  bool norms_compared_ = false;
  double seconds_unreported_ = 0;  // since exchange_usage(), the same on all ranks
};

}  // namespace lockstep::train
