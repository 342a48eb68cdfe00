#pragma once
// Epochs, steps, evaluation, checkpoints and stops, in the order in which the plain Python program has them.

#include <memory>
#include <optional>
#include <string>

#include "lockstep/checkpoint/store.h"
#include "lockstep/data/loader.h"
#include "lockstep/launch/grace.h"
#include "lockstep/run_folder/console.h"
#include "lockstep/run_folder/recorder.h"
#include "lockstep/run_folder/request.h"
#include "lockstep/train/agreement.h"
#include "lockstep/train/loss_trace.h"
#include "lockstep/train/rounds.h"
#include "lockstep/train/setup.h"
#include "lockstep/train/step.h"
#include "lockstep/train/training_state.h"

namespace lockstep::train {

/// How a run ended.
struct Ending {
  run_folder::RunState state = run_folder::RunState::done;
  std::string reason;  // "epochs", "max_steps", "max_seconds", "early stop", or why it stopped early

  /// There is more to train, and a checkpoint to go on from.
  bool stopped() const {
    return state == run_folder::RunState::stopped_early || state == run_folder::RunState::stopped_on_request;
  }
};

class Trainer {
 public:
  /// Builds model, optimiser and schedule. Collective.
  explicit Trainer(Setup& setup);

  /// Goes on from a checkpoint. Collective.
  void restore(const Tree& checkpoint, const std::string& file);
  /// The state restored is this checkpoint of the run's own folder: it need not be written again.
  void found_in(const std::string& path);
  /// Where to write; rank 0's. Without it nothing is written.
  void write_to(std::shared_ptr<run_folder::HeldFolder> folder, int64_t attempt);
  /// The metrics file is a new one, not the one that the checkpoint knows.
  void forget_metrics() { state_.metrics_offset = 0; }
  /// When the job must have left.
  void leave_before(std::optional<std::chrono::system_clock::time_point> deadline) { deadline_ = deadline; }

  Ending run();

  /// One forward and backward on the first batch, for a dry run. Returns the seconds of a step.
  double try_step();

  const TrainingState& state() const { return state_; }
  const Rounds& rounds() const { return rounds_; }
  TrainedModel& model() { return *model_; }
  /// What the run's folder says of it from now on; rank 0's.
  void tell(run_folder::RunState state, const std::string& reason);

 private:
  using Clock = std::chrono::steady_clock;

  void train_epoch();
  void take_steps();
  void after_step();
  void log_step(double loss);
  void note_place();
  void show_progress();
  void obey(const Verdicts& verdicts);
  Verdicts ask();
  Word word_between_steps();
  void hear_what_came_before();
  std::optional<Ending> limit_reached() const;
  bool is_stopping() const { return ending_ && ending_->stopped(); }
  bool is_last_epoch() const { return ending_ || state_.epoch + 1 == settings_.train.epochs; }
  bool is_scheduled_evaluation() const;
  bool is_checkpoint_due() const;
  [[noreturn]] void report_bad_loss();
  void end_epoch();
  void end_inside_epoch();
  std::unique_ptr<Metrics> evaluate_now();
  double mean_train_loss();
  void record_epoch(double train_loss, const Metrics* metrics);
  bool count_epochs_without_better(const Metrics* metrics);
  enum class Save { newest, best };
  void checkpoint(Save what = Save::newest);
  void checkpoint_from_before(const at::Tensor& generator);
  void write(const Tree& tree, CheckpointStore::Name name);
  void warn_of_checkpoint(const std::exception& error);
  void answer_when_saved();
  void refuse_what_is_not_finite();
  void finish_checkpoints();
  bool last_checkpoint_lies_here();
  void summarize();
  Stateful parts() { return {*model_, *optimizer_, *schedule_, scaler_.get(), memory_}; }
  double seconds_trained() const;
  Setup& setup_;
  const Settings& settings_;
  const Team& team_;
  Rounds rounds_;
  std::unique_ptr<TrainedModel> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<Schedule> schedule_;
  std::unique_ptr<GradScaler> scaler_;
  DistributedSampler sampler_;
  std::optional<TrainingStep> step_;
  Tree memory_;  // the task's, the same in every checkpoint

  TrainingState state_;
  LossTrace losses_;
  PhaseClock clock_;
  Agreement agreement_;
  run_folder::Console console_;
  std::unique_ptr<run_folder::Recorder> recorder_;  // rank 0
  std::optional<run_folder::Requests> requests_;    // rank 0
  bool answer_is_near_ = false;                     // the checkpoint that was asked for is being written
  bool checkpoints_fail_ = false;                   // the last one could not be written
  std::unique_ptr<CheckpointWriter> writer_;        // rank 0
  std::optional<TrainingState> saved_;              // what the newest checkpoint holds
  std::optional<std::chrono::system_clock::time_point> deadline_;
  std::optional<Ending> ending_;
  std::unique_ptr<launch::Grace> grace_;

  Clock::time_point begin_, epoch_begin_, log_begin_, save_begin_;
  bool evaluation_is_long_ = true;                             // until one has shown how long it takes
  bool best_is_new_ = false;                                   // and not yet saved
  int64_t samples_ = 0, epoch_samples_ = 0, log_samples_ = 0;  // this rank's
  int64_t first_step_ = 0;                                     // of this attempt
  int64_t steps_this_epoch_ = 0;
  std::string newest_;         // the checkpoint that was found
  double seconds_before_ = 0;  // of earlier attempts
  double lr_ = 0;              // of the last step
};

}  // namespace lockstep::train
