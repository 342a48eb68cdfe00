#pragma once
// The steps of a config's training, as many as are asked for, with nothing around them that a run leaves.

#include <memory>
#include <optional>

#include "trainer/step/step.h"

namespace lockstep::bench {

class TrainingSteps {
 public:
  /// What learns is made from the config's seed. `setup` outlives this. Collective.
  explicit TrainingSteps(const train::Setup& setup);
  TrainingSteps(const TrainingSteps&) = delete;
  TrainingSteps& operator=(const TrainingSteps&) = delete;

  /// Begins an epoch where the next step is its first, with its acting. Collective.
  void make_ready();
  /// The next one; behind an epoch's last comes another epoch. Collective.
  void take();
  /// Returns when a GPU has done what it was given.
  void read_pending() { losses_.read_pending(); }

  /// A loss was no number, of those that have been read.
  bool diverged() const { return losses_.bad().has_value(); }

  train::PhaseClock& clock() { return clock_; }
  const train::Learner& learner() const { return learner_; }
  /// This rank's, of all steps taken.
  int64_t samples() const { return samples_; }

 private:
  void begin_epoch();

  train::Learner learner_;
  train::TrainingStep step_;
  const train::Feed feed_;
  train::TrainingState state_;
  train::PhaseClock clock_;
  train::LossTrace losses_;
  int64_t samples_ = 0;
  std::unique_ptr<train::EpochFeed> epoch_;
  std::optional<train::EpochFeed::iterator> next_;
};

}  // namespace lockstep::bench
