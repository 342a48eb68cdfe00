#pragma once
// One training step, on one screen: what every program around it is for.

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trainer/observe/loss_trace.h"
#include "trainer/observe/phase_clock.h"
#include "trainer/setup/setup.h"
#include "trainer/step/batch_copies.h"
#include "trainer/step/captured_step.h"
#include "trainer/step/feed.h"
#include "trainer/step/learner.h"

namespace lockstep::train {

class TrainingStep {
 public:
  TrainingStep(const Setup& setup, Learner& learner);
  TrainingStep(const TrainingStep&) = delete;
  TrainingStep& operator=(const TrainingStep&) = delete;

  /// Before an epoch's first step.
  void begin_epoch(const SampleOrder& order);
  /// One optimiser step over the batches, each loss divided by their number.
  void run(int64_t number, StepBatches& batches, LossTrace& losses, PhaseClock& clock);
  /// The parameters that had no gradient but zeros in all steps so far, by name; the next call gives none.
  std::vector<std::string> take_untrained();

 private:
  std::unique_ptr<CapturedStep> captured_step(const Setup& setup, const Learner& learner);
  void run_captured(int64_t number, StepBatches& batches, LossTrace& losses, PhaseClock& clock);
  at::Tensor learn(const Batch& batch);
  StepContext make_lesson();
  LossOptions loss_on(at::Device device) const;
  void update();
  void look_for_gradients();
  void backward(const at::Tensor& loss);
  template <class Work>
  void timed_backward(const Work& work);

  TrainedModel& model_;
  Optimizer& optimizer_;
  GradScaler* scaler_;  // fp16 alone
  const Task& task_;
  LossOptions loss_;
  const Settings& settings_;
  at::Device device_;
  const int64_t last_step_;  // of the run: no batch follows
  std::optional<at::ScalarType> autocast_;
  std::vector<at::Tensor> parameters_;
  std::vector<NamedParameter> untrained_;  // so far; no captured step looks
  unsigned looks_ = 0;
  BatchCopies copies_;
  // When the last own gradient was there, while a backward is timed.
  struct GradientsDone {
    PhaseClock* clock = nullptr;
    std::optional<PhaseClock::Moment> moment = {};
  };
  std::shared_ptr<GradientsDone> gradients_done_;
  const StepContext lesson_;
  std::unique_ptr<CapturedStep> captured_;  // with train.graph alone
  PhaseClock* clock_ = nullptr;             // of the step that runs
  int64_t batches_ = 1;                     // in it
};

/// A batch's input where and how the model wants it, for its next forward.
at::Tensor placed(Net& net, const at::Tensor& input, at::Device device, ImageLayout layout);

}  // namespace lockstep::train
