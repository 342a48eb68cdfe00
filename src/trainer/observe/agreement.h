#pragma once
// All ranks stop after the same step, and no step pays for it: the ranks ask each other about four times a
// second, at a step that all of them computed alike, together with the loss for the log.

#include <torch/nn/module.h>

#include <chrono>
#include <cstdint>
#include <string>

#include "lockstep/parallel/team.h"

namespace lockstep::train {

enum class Stop { no, signal, request, deadline, max_seconds, not_finite };

/// What one rank knows when it is asked.
struct RankReport {
  int signal = 0;           // the one it got
  bool deadline = false;    // the job is about to end
  bool stop_asked = false;  // lockstep stop
  bool save_asked = false;  // lockstep checkpoint, or checkpoint.every_minutes
  bool time_up = false;     // train.max_seconds
  bool not_finite = false;  // its loss was NaN or infinite
  double loss = 0;          // of its last step
};

/// What the ranks know together.
struct Agreed {
  Stop stop = Stop::no;
  int signal = 0;
  bool save = false;  // a checkpoint now
  double loss = 0;    // the mean over ranks
};

class Agreement {
 public:
  explicit Agreement(const Team& team) : team_(team) {}

  /// This attempt starts after `step`: only steps that it takes are timed. Without a call: from the first.
  void begin(int64_t step);

  /// Is it time to ask after this step? The same answer on every rank.
  bool due(int64_t step) const { return step >= next_; }
  /// Collective.
  Agreed ask(int64_t step, const RankReport& word);

 private:
  using Clock = std::chrono::steady_clock;
  const Team& team_;
  int64_t next_ = 0;
  int64_t last_step_ = 0;
  Clock::time_point last_time_ = Clock::now();
};

// Batch normalisation that each rank does over its own samples: how far the ranks' running statistics lie
// apart.

/// Where they differ most, in words with what to do; empty where they are the same, or there are none.
/// Collective where the module has any.
std::string norm_drift(const Team& team, const torch::nn::Module& module);

}  // namespace lockstep::train
