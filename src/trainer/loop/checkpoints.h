#pragma once
// A run's checkpoints: when one is due, taken on all ranks together, written by rank 0 in the background.

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/checkpoint/store.h"
#include "lockstep/checkpoint/tree.h"
#include "lockstep/parallel/mesh.h"
#include "trainer/config/settings.h"
#include "trainer/loop/run_log.h"
#include "trainer/observe/loss_trace.h"
#include "trainer/run_folder/status.h"
#include "trainer/step/feed.h"
#include "trainer/step/step.h"

namespace lockstep::train {

/// What a checkpoint holds besides the state.
struct CheckpointContext {
  const Settings& settings;
  const Mesh& mesh;
  const Learner& learner;
  std::string config;  // resolved, as YAML
};

class Checkpoints {
 public:
  /// `state` is what the attempt starts from; if that is a checkpoint of its own folder, it is not written
  /// again.
  Checkpoints(CheckpointContext subject, const TrainingState& state, const RunAttempt& attempt,
              run_folder::Requests* requests, RunLog& log);

  /// Whether one is due after this step (every_steps); the same on every rank.
  bool is_due(const TrainingState& state) const;
  /// Whether rank 0 wants one now: every_minutes, or a request. Answers a request once it is written.
  bool is_wanted(const TrainingState& state);

  /// Takes one, unless the newest is of the same step. Collective.
  void save(const TrainingState& state, const LossTrace& losses);
  /// Takes what is due after an epoch, newest and best; after the last one the run's end does. Collective.
  void save_after_epoch(const TrainingState& state, const LossTrace& losses, bool better, bool last);
  /// Waits until the last one is written. Collective.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  using Name = CheckpointStore::Name;

  void take(TrainingState state, const LossTrace& losses, Name name);
  void write(const Tree& tree, Name name);
  void answer_when_written(const TrainingState& state);
  void warn(const std::exception& error);

  CheckpointContext subject_;
  RunLog& log_;
  run_folder::Requests* requests_;             // rank 0's
  std::optional<TrainingState> saved_;         // what the newest one holds
  Clock::time_point saved_at_ = Clock::now();  // or when the attempt began
  bool best_is_new_ = false;                   // and not yet saved
  bool answer_is_pending_ = false;             // the one that was asked for is being written
  bool fails_ = false;                         // the last one could not be written
  std::unique_ptr<CheckpointWriter> writer_;   // where there is a folder
};

/// All that a run needs to resume with the same bits. Collective; only rank 0 gets it.
Tree to_checkpoint(const Mesh& mesh, const TrainingState& state, const Learner& learner,
                   const std::string& config);

/// Restores everything. InputError, before anything is changed, if the model is another one. A file from
/// Python has a model and perhaps an optimizer.
TrainingState from_checkpoint(const Mesh& mesh, const Tree& tree, const std::string& file, Learner& learner);

/// Logs what differs from where the checkpoint was written and changes the bits: threads, GPU, order of sums,
/// machine, world. With train.exact: required that is an InputError on all ranks, and so is a checkpoint
/// without these facts.
void compare_bits(const Setup& setup, const Tree& checkpoint);

/// The same for the processors and GPUs of this job's ranks, before the first step.
void compare_ranks(const Setup& setup);

}  // namespace lockstep::train
