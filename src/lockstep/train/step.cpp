#include "lockstep/train/step.h"

#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/optim/clip.h"
#include "lockstep/train/autocast.h"

namespace lockstep::train {

void TrainingStep::run(int64_t number, int64_t batches, const std::function<Batch&()>& next_batch,
                       LossTrace& losses, PhaseClock& clock) {
  optimizer_.zero_grad();
  for (int64_t i = 0; i < batches; ++i) {
    const auto local =
        i + 1 < batches ? model_.no_sync() : nullptr;  // only the last batch's backward exchanges
    clock.enter(Phase::data);
    const Batch& batch = next_batch();
    clock.enter(Phase::forward);
    const auto loss = forward(batch);
    losses.add(number, loss, batch.indices);
    backward(batches > 1 ? loss / static_cast<double>(batches) : loss, clock);
  }
  clock.enter(Phase::optimiser);
  update();
  clock.enter(Phase::other);
}

at::Tensor TrainingStep::forward(const Batch& batch) {
  const auto input = placed(batch.input, device_, settings_.train.layout);
  const auto target = batch.target.to(device_, /*non_blocking=*/true);
  const Autocast scope(device_.type(), autocast_);
  return task_.loss(model_.forward(input), target, loss_);
}

// What backward takes after this rank's last own gradient is waiting for the others.
void TrainingStep::backward(const at::Tensor& loss, PhaseClock& clock) {
  clock.enter(Phase::backward);
  *gradients_done_ = {};
  (scaler_ ? scaler_->scale(loss) : loss).backward();
  if (*gradients_done_ != PhaseClock::Clock::time_point{}) clock.enter_at(Phase::waiting, *gradients_done_);
}

void TrainingStep::update() {
  const double most = settings_.train.clip_norm;
  if (scaler_ && most > 0) scaler_->unscale_(optimizer_);
  if (most > 0) clip_grad_norm_(parameters_, most);
  if (!scaler_) return optimizer_.step();
  scaler_->step(optimizer_);
  scaler_->update();
}

TrainingStep::TrainingStep(TrainedModel& model, Optimizer& optimizer, GradScaler* scaler, const Task& task,
                           LossOptions loss, const Settings& settings, at::Device device)
    : model_(model),
      optimizer_(optimizer),
      scaler_(scaler),
      task_(task),
      loss_(std::move(loss)),
      settings_(settings),
      device_(device),
      autocast_(autocast_type(settings.train.precision)),
      parameters_(model.parameters()),
      gradients_done_(std::make_shared<PhaseClock::Clock::time_point>()) {
  // Backward reaches the first parameters last: one time stamp there tells computing from waiting.
  for (size_t i = 0; i < std::min<size_t>(2, parameters_.size()); ++i) {
    if (!model_.exchanges() || !parameters_[i].requires_grad()) continue;
    parameters_[i].register_hook(
        [done = gradients_done_](const at::Tensor&) { *done = PhaseClock::Clock::now(); });
  }
}

at::Tensor placed(const at::Tensor& input, at::Device device, const std::string& layout) {
  const auto there = input.to(device, /*non_blocking=*/true);
  return layout == "channels_last" && there.dim() == 4 ? there.contiguous(at::MemoryFormat::ChannelsLast)
                                                       : there;
}

}  // namespace lockstep::train
