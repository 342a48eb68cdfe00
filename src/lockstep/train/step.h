#pragma once
// One training step, on one screen: what every program around it is for.

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "lockstep/config/settings.h"
#include "lockstep/data/dataset.h"
#include "lockstep/optim/grad_scaler.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/tasks/task.h"
#include "lockstep/train/loss_trace.h"
#include "lockstep/train/model.h"
#include "lockstep/train/phase_clock.h"

namespace lockstep::train {

class TrainingStep {
 public:
  TrainingStep(TrainedModel& model, Optimizer& optimizer, GradScaler* scaler, const Task& task,
               LossOptions loss, const Settings& settings, at::Device device);

  /// One optimiser step over `batches` batches, each loss divided by their number.
  void run(int64_t number, int64_t batches, const std::function<Batch&()>& next_batch, LossTrace& losses,
           PhaseClock& clock);

 private:
  at::Tensor forward(const Batch& batch);
  void update();
  void backward(const at::Tensor& loss, PhaseClock& clock);

  TrainedModel& model_;
  Optimizer& optimizer_;
  GradScaler* scaler_;  // fp16 alone
  const Task& task_;
  LossOptions loss_;
  const Settings& settings_;
  at::Device device_;
  std::optional<at::ScalarType> autocast_;
  std::vector<at::Tensor> parameters_;
  std::shared_ptr<PhaseClock::Clock::time_point> gradients_done_;  // when the last own gradient was there
};

/// A batch's input where and how the model wants it.
at::Tensor placed(const at::Tensor& input, at::Device device, const std::string& layout);

}  // namespace lockstep::train
