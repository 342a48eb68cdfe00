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
#include "trainer/run_folder/request.h"
#include "trainer/step/feed.h"
#include "trainer/step/learner.h"

namespace lockstep::train {

/// What a checkpoint says besides where the run stands.
struct Subject {
  const Settings& settings;
  const Mesh& mesh;
  const Learner& learner;
  std::string config;  // resolved, as YAML
};

class Checkpoints {
 public:
  /// `state` is what the attempt goes on from: where it found that in its own folder, it need not be written
  /// again. `requests`, `log` and what the subject names outlive this.
  Checkpoints(Subject subject, const TrainingState& state, const RunAttempt& attempt,
              run_folder::Requests* requests, RunLog& log);

  /// Is one due after this step (every_steps)? The same on every rank.
  bool is_due(const TrainingState& state) const;
  /// Does rank 0 want one now: every_minutes, or a request? One that was asked for and is written by now is
  /// answered.
  bool is_wanted(const TrainingState& state);

  /// Takes one, unless the newest is of the same place. It follows an agreement in which no rank had a bad
  /// loss. Collective.
  void save(const TrainingState& state, const LossTrace& losses);
  /// The epoch before `state` is over, and its evaluation was the best so far or not: takes what is due of
  /// newest and best. After the last epoch that is left to the run's end. Collective.
  void save_after_epoch(const TrainingState& state, const LossTrace& losses, bool better, bool last);
  /// The run is over and its last state is saved: waits until it is written. Collective.
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  using Name = CheckpointStore::Name;

  void take(TrainingState state, const LossTrace& losses, Name name);
  void write(const Tree& tree, Name name);
  void answer_when_written(const TrainingState& state);
  void warn(const std::exception& error);

  Subject subject_;
  RunLog& log_;
  run_folder::Requests* requests_;             // rank 0's
  std::optional<TrainingState> saved_;         // what the newest one holds
  Clock::time_point saved_at_ = Clock::now();  // or when the attempt began
  bool best_is_new_ = false;                   // and not yet saved
  bool answer_is_pending_ = false;             // the one that was asked for is being written
  bool fails_ = false;                         // the last one could not be written
  std::unique_ptr<CheckpointWriter> writer_;   // where there is a folder
};

// The checkpoint of a training: everything that it needs to resume with the same bits.

/// The whole checkpoint. Collective; the ranks other than 0 get an empty one.
Tree to_checkpoint(const Mesh& mesh, const TrainingState& state, const Learner& learner,
                   const std::string& config);

/// Puts everything back. InputError, before anything is changed, where the model is another one. A file of
/// Python's brings its model, and its optimiser where it has one.
TrainingState from_checkpoint(const Mesh& mesh, const Tree& tree, const std::string& file, Learner& learner);

}  // namespace lockstep::train
