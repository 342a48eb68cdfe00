#include "trainer/step/step.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <bit>
#include <utility>

#include "trainer/modes/autocast.h"
#include "trainer/step/evaluate.h"

namespace lockstep::train {
namespace {

at::Tensor laid_out(const at::Tensor& input, ImageLayout layout) {
  return layout == ImageLayout::channels_last && input.dim() == 4
             ? input.contiguous(at::MemoryFormat::ChannelsLast)
             : input;
}

// The same, of which the model knows what it holds.
at::Tensor foreseen(Net& net, const at::Tensor& on_host, const at::Tensor& there) {
  if (on_host.is_cpu() && !there.is_cpu()) net.foresee(there, on_host);
  return there;
}

LossOptions loss_options(const Setup& setup) {
  LossOptions options;
  options.label_smoothing = setup.settings.train.label_smoothing;
  if (setup.data.class_weights.defined())
    options.class_weights = setup.data.class_weights.to(setup.team->device());
  return options;
}

}  // namespace

LossOptions TrainingStep::loss_on(at::Device device) const {
  auto options = loss_;
  if (options.class_weights.defined()) options.class_weights = options.class_weights.to(device);
  return options;
}

void TrainingStep::begin_epoch(const SampleOrder& order) {
  if (captured_) captured_->begin_epoch(order);
}

void TrainingStep::run(int64_t number, StepBatches& batches, LossTrace& losses, PhaseClock& clock) {
  if (captured_) return run_captured(number, batches, losses, clock);
  clock_ = &clock;
  batches_ = batches.size();
  optimizer_.zero_grad();
  clock.enter(Phase::data);
  clock.begin_step(number);
  for (const auto& batch : batches) {
    const auto local = batches.at_last() ? nullptr : model_.no_sync();  // the last one's backward exchanges
    clock.enter(Phase::forward);
    losses.add(number, learn(batch), batch.indices);
    clock.enter(Phase::data);
    if (copies_.overlap() && !(number == last_step_ && batches.at_last()))
      copies_.begin(batches.look_ahead());
  }
  clock.enter(Phase::optimiser);
  update();
  look_for_gradients();
  clock.end_step();
}

// train.graph goes with one batch a step. What is captured has no phases, and the device's time would cost
// events between the launches.
void TrainingStep::run_captured(int64_t number, StepBatches& batches, LossTrace& losses, PhaseClock& clock) {
  clock.time_on_host();
  clock.enter(Phase::data);
  clock.begin_step(number);
  for (const auto& batch : batches) {
    clock.enter(Phase::forward);
    captured_->run(number, batch.indices, losses);
    clock.enter(Phase::data);
  }
  clock.end_step();
}

std::unique_ptr<CapturedStep> TrainingStep::captured_step(const Setup& setup, const Learner& learner) {
  if (!learner.graph) return nullptr;
  const auto work = [this](const Batch& batch) {
    PhaseClock unread;
    clock_ = &unread;
    optimizer_.zero_grad();
    const auto loss = learn(batch);
    update();
    return loss;
  };
  return std::make_unique<CapturedStep>(
      CapturedStep::Parts{.graph = *learner.graph,
                          .data = dynamic_cast<const data::ResidentSet&>(*setup.data.train),
                          .optimizer = optimizer_,
                          .batch_size = settings_.data.batch_size,
                          .most_batches = learner.rounds.batches},
      work);
}

at::Tensor TrainingStep::learn(const Batch& batch) {
  const auto [input, target] = copies_.take(batch);
  return model_.learn(foreseen(model_.net(), batch.input, laid_out(input, settings_.train.layout)), target,
                      lesson_);
}

StepContext TrainingStep::make_lesson() {
  return {.criterion =
              [this](const at::Tensor& output, const at::Tensor& wanted) {
                return task_.loss(output, wanted, loss_on(output.device()));
              },
          .backward =
              [this](const at::Tensor& loss) {
                backward(batches_ > 1 ? loss / static_cast<double>(batches_) : loss);
              },
          .autocast =
              [this] { return autocast_ ? std::make_shared<Autocast>(device_.type(), autocast_) : nullptr; },
          .backward_from =
              [this](const at::Tensor& output, const at::Tensor& gradient) {
                timed_backward([&] { output.backward(gradient); });
              },
          .weight =
              [this](const at::Tensor& wanted) {
                return weight_of(wanted, loss_on(wanted.device()).class_weights);
              },
          .enter = [this](Phase phase) { clock_->enter(phase); }};
}

void TrainingStep::backward(const at::Tensor& loss) {
  timed_backward([&] { (scaler_ ? scaler_->scale(loss) : loss).backward(); });
}

// What backward takes after this rank's last own gradient is waiting for the others.
template <class Work>
void TrainingStep::timed_backward(const Work& work) {
  clock_->enter(Phase::backward);
  *gradients_done_ = {clock_};
  work();
  const auto [clock, moment] = std::exchange(*gradients_done_, {});
  if (moment) clock->enter_at(Phase::waiting, *moment);
}

void TrainingStep::update() {
  const double most = settings_.train.clip_norm;
  if (scaler_ && most > 0) scaler_->unscale_(optimizer_);
  if (most > 0) model_.clip_gradients(most);
  if (!scaler_) return optimizer_.step();
  scaler_->step(optimizer_);
  scaler_->update();
}

// Once a parameter has had one, it is not looked at again. A look waits for a GPU: there, at steps 1, 2, 4,
// 8, ...
void TrainingStep::look_for_gradients() {
  if (untrained_.empty() || (device_.is_cuda() && !std::has_single_bit(++looks_))) return;
  std::erase_if(untrained_, [](const NamedParameter& parameter) {
    const auto& grad = parameter.second.grad();
    return grad.defined() && (grad.layout() != at::kStrided || grad.any().item<bool>());
  });
}

std::vector<std::string> TrainingStep::take_untrained() {
  std::vector<std::string> names;
  for (const auto& [name, parameter] : std::exchange(untrained_, {})) names.push_back(name);
  return names;
}

TrainingStep::TrainingStep(const Setup& setup, Learner& learner)
    : model_(*learner.model),
      optimizer_(*learner.optimizer),
      scaler_(learner.scaler.get()),
      task_(*setup.task),
      loss_(loss_options(setup)),
      settings_(setup.settings),
      device_(setup.team->device()),
      last_step_(learner.rounds.total_steps),
      autocast_(autocast_type(settings_.train.precision)),
      parameters_(model_.parameters()),
      copies_(device_),
      gradients_done_(std::make_shared<GradientsDone>()),
      lesson_(make_lesson()),
      captured_(captured_step(setup, learner)) {
  if (!captured_) untrained_ = named_parameters(model_);
  std::erase_if(untrained_,
                [](const NamedParameter& parameter) { return !parameter.second.requires_grad(); });
  if (scaler_) scaler_->share_with([this](at::Tensor& found) { model_.share_overflow(found); });
  // Backward reaches the first parameters last: one time stamp there tells computing from waiting. It goes
  // through each device in a thread of its own, so those of one device alone.
  for (size_t i = 0; i < std::min<size_t>(2, parameters_.size()); ++i) {
    if (!model_.exchanges() || !parameters_[i].requires_grad() || parameters_[i].device() != device_)
      continue;
    parameters_[i].register_hook([done = gradients_done_](const at::Tensor&) {
      if (done->clock) done->moment = done->clock->now();
    });
  }
}

at::Tensor placed(Net& net, const at::Tensor& input, at::Device device, ImageLayout layout) {
  return foreseen(net, input, laid_out(on_device(input, device), layout));
}

}  // namespace lockstep::train
