#pragma once
// When and how a run ends: signals, the job's end, requests, limits, a loss that is not finite.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "lockstep/launch/process/alarm.h"
#include "lockstep/parallel/team.h"
#include "trainer/config/settings.h"
#include "trainer/loop/run_log.h"
#include "trainer/observe/loss_trace.h"
#include "trainer/run_folder/status.h"
#include "trainer/step/feed.h"

namespace lockstep::train {

// All ranks stop after the same step. They exchange reports about four times a second, at a step that all of
// them compute alike, together with the loss for the log.

enum class Stop { no, signal, request, deadline, max_seconds, not_finite };

/// What one rank knows.
struct RankReport {
  int signal = 0;           // the one it got
  bool deadline = false;    // the job is about to end
  bool stop_asked = false;  // lockstep stop
  bool save_asked = false;  // lockstep checkpoint, or checkpoint.every_minutes
  bool time_up = false;     // train.max_seconds
  bool not_finite = false;  // its loss was NaN or infinite
  double loss = 0;          // of its last step
};

/// What the ranks have agreed on.
struct StepDecision {
  Stop stop = Stop::no;
  int signal = 0;
  bool save = false;   // a checkpoint now
  double loss = 0;     // the mean over ranks
  double seconds = 0;  // of the steps since the last time, the mean over ranks
};

class Agreement {
 public:
  explicit Agreement(const Team& team) : team_(team) {}

  /// This attempt starts after `step`: only its own steps are timed.
  void begin(int64_t step);

  /// Whether to ask after this step; the same on every rank.
  bool due(int64_t step) const { return step >= next_; }
  /// Collective.
  StepDecision ask(int64_t step, const RankReport& report);

 private:
  using Clock = std::chrono::steady_clock;
  const Team& team_;
  int64_t next_ = 0;
  int64_t last_step_ = 0;
  Clock::time_point last_time_ = Clock::now();
};

/// How a run ended.
struct RunEnding {
  run_folder::RunState state = run_folder::RunState::done;
  std::string
      reason;  // "epochs", "max_steps", "max_seconds", "early stop", "solved", or why it stopped early

  /// There is more to train, and a checkpoint to resume from.
  bool stopped() const {
    return state == run_folder::RunState::stopped_early || state == run_folder::RunState::stopped_on_request;
  }
};

class RunWatch {
 public:
  using Deadline = std::function<std::optional<std::chrono::system_clock::time_point>()>;

  /// `deadline`: when the job must have left, if that is known. It and `requests` are rank 0's.
  RunWatch(const Settings& settings, const Team& team, Deadline deadline, run_folder::Requests* requests,
           RunLog& log);

  /// Obeys what came while the run was set up, and a limit that an earlier attempt reached. From now on a
  /// SIGTERM that the ranks cannot agree on ends this rank. Collective.
  void begin(const TrainingState& state);

  /// Whether to ask the others after this step; the same on every rank.
  bool is_due(const TrainingState& state) const;
  /// `save`: this rank wants a checkpoint. Collective.
  StepDecision ask(const TrainingState& state, LossTrace& losses, bool save);
  /// Ends the run if the ranks agreed on it, or the last step is done. Throws, collectively, if a loss was
  /// not finite.
  void apply(const StepDecision& decision, const TrainingState& state, const LossTrace& losses);

  /// For work between two steps that has rounds of its own, such as an evaluation.
  Agreement count_rounds() const;
  /// ask() and apply() between two such rounds. Collective.
  StepDecision exchange_between_rounds(Agreement& agreement, int64_t round, bool save);

  /// Whether the loss of a scheduled evaluation is the best so far; too many that are not end the run.
  bool is_best(const std::optional<double>& eval_loss, TrainingState& state);

  /// Ends the run: the task has reached its goal.
  void reach_goal();

  /// All training is done: nothing is left to agree on, and a write may take long.
  const RunEnding& finish();
  /// From now on a SIGTERM does not end this rank.
  void leave() { grace_.reset(); }

  const std::optional<RunEnding>& ending() const { return ending_; }
  /// Ends with more to train.
  bool is_stopping() const { return ending_ && ending_->stopped(); }

 private:
  RankReport own_report(bool save);
  void stop_for(const StepDecision& decision);
  void limit_wait_after_sigterm();

  const Settings& settings_;
  const Team& team_;
  const Deadline deadline_;
  run_folder::Requests* requests_;
  RunLog& log_;
  Agreement agreement_;
  std::optional<RunEnding> ending_;
  std::unique_ptr<launch::Grace> grace_;
};

}  // namespace lockstep::train
