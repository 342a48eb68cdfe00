#include "trainer/step/step.h"

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <bit>
#include <exception>
#include <map>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/zero/sharded_optimizer.h"
#include "trainer/provoke/provoke.h"
#include "trainer/setup/saved.h"
#include "trainer/step/evaluate.h"

namespace lockstep::train {
namespace {

std::string kilobytes(double bytes) {
  return format("{:.1f} {}", bytes / (bytes < (1 << 20) ? 1 << 10 : 1 << 20),
                bytes < (1 << 20) ? "kB" : "MB");
}

// Collective.
std::string shared_memory_line(const Team& team, double own) {
  std::vector<double> sum{own}, ends{own, -own};
  team.sum(sum);
  team.max(ends);
  return format("optimizer state: {} of {} on this rank ({} ranks: {} to {} each)", kilobytes(own),
                kilobytes(sum[0]), team.world(), kilobytes(-ends[1]), kilobytes(ends[0]));
}

std::unique_ptr<Optimizer> make_optimizer_of(const Settings& settings, const Team& team,
                                             const TrainedModel& model) {
  const auto groups = decay_groups(settings.optim, named_parameters(model));
  if (!settings.optim.sharded || settings.train.mode != TrainMode::ddp || team.world() == 1)
    return make_optimizer(groups);
  auto optimizer = make_sharded_optimizer(groups, team);
  log::info(shared_memory_line(team, state_bytes_of(*optimizer)));
  return optimizer;
}

void require_fused(Optimizer& optimizer, const OptimSettings& settings) {
  if (optimizer.fuse()) return;
  throw InputError(format("train.graph: the step of optimizer {} cannot be captured", settings.name),
                   "optim.name", "use sgd, adam or adamw, or set train.graph to false");
}

}  // namespace

std::vector<NamedParameter> named_parameters(const TrainedModel& model) {
  std::map<const void*, std::string> names;
  for (const auto& item : model.net().named_parameters())
    names.emplace(item.value().unsafeGetTensorImpl(), item.key());
  std::vector<NamedParameter> named;
  for (const auto& parameter : model.parameters())
    named.emplace_back(names[parameter.unsafeGetTensorImpl()], parameter);
  return named;
}

double state_bytes_of(const Optimizer& optimizer) {
  int64_t bytes = 0;
  for (size_t i = 0; i < optimizer.parameters().size(); ++i)
    if (optimizer.parameters()[i].requires_grad()) bytes += optimizer.state_bytes(i);
  return static_cast<double>(bytes);
}

Learner make_learner(const Setup& setup) {
  const auto& settings = setup.settings;
  const auto& team = *setup.team;
  Learner learner;
  learner.source = make_sample_source(setup);
  // first: what a step uses is made on the stream that is captured
  if (settings.train.graph) learner.graph = comm::cuda().make_step_graph(team.device().index());
  learner.rounds = plan_epochs(settings, learner.source->samples(), setup.mesh->data().world());
  check_fault(settings, setup.mesh->data());
  const auto net = seeded_model(setup);
  learner.tracer = make_tracer(settings, net->parameters().size());
  learner.model = make_trained_model(net, *setup.mesh, settings,
                                     {.another = [&setup] { return task_model(setup); },
                                      .tracer = learner.tracer,
                                      .known_loss = setup.task->known_loss(),
                                      .class_weights = setup.data.class_weights});
  learner.optimizer = make_optimizer_of(settings, setup.mesh->data(), *learner.model);
  if (learner.graph) require_fused(*learner.optimizer, settings.optim);
  learner.schedule =
      make_schedule(settings.schedule, *learner.optimizer, learner.rounds.total_steps, settings.train.epochs);
  if (settings.train.precision == Precision::fp16)
    learner.scaler = std::make_unique<GradScaler>(team.device());
  learner.memory = remembered(setup);
  return learner;
}

// What lies there stays as it is: a small model's step is short enough for a call that finds nothing to do.
at::Tensor on_device(const at::Tensor& tensor, at::Device device) {
  return !tensor.defined() || tensor.device() == device ? tensor : tensor.to(device, /*non_blocking=*/true);
}

BatchCopies::BatchCopies(at::Device device) : device_(device) {
  if (device.is_cuda()) stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

BatchCopies::~BatchCopies() {
  try {
    for (const auto& source : under_way_) source.done->synchronize();
  } catch (const std::exception&) {
    // a device that failed reads no more
  }
}

// An error belongs to the batch's own step, not to the one that this one travels beside.
void BatchCopies::begin(const Batch* batch) {
  if (!batch || !batch->input.is_cpu()) return;
  try {
    next_ = send(*batch);
  } catch (const std::exception&) {
    next_.reset();
  }
}

BatchCopies::Copy BatchCopies::send(const Batch& batch) {
  release_finished();
  const c10::StreamGuard on(*stream_);
  const auto done = std::make_shared<c10::Event>(device_.type());
  Copy copy{{batch.input, batch.target, done},
            {on_device(batch.input, device_), on_device(batch.target, device_)}};
  done->record(*stream_);
  under_way_.push_back(copy.of);
  return copy;
}

// libtorch gives page-locked memory of its own to nobody before the copy is done; a set may have other.
void BatchCopies::release_finished() {
  while (!under_way_.empty() && under_way_.front().done->query()) under_way_.pop_front();
}

BatchCopies::Placed BatchCopies::take(const Batch& batch) {
  if (!stream_ || !batch.input.is_cpu())
    return {on_device(batch.input, device_), on_device(batch.target, device_)};
  auto copy = std::exchange(next_, std::nullopt);
  if (!copy || !copy->of.input.is_same(batch.input)) copy = send(batch);
  const auto computing = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
  copy->of.done->block(computing);
  for (const auto& tensor : {copy->placed.input, copy->placed.target})
    if (tensor.defined() && tensor.is_cuda()) tensor.record_stream(computing);
  return copy->placed;
}

namespace {

std::vector<double> momenta_of(const Optimizer& optimizer) {
  std::vector<double> momenta;
  for (size_t group = 0; group < optimizer.group_count(); ++group)
    momenta.push_back(optimizer.momentum(group));
  return momenta;
}

}  // namespace

CapturedStep::CapturedStep(const Parts& parts, Work work)
    : parts_(parts), work_(std::move(work)), momenta_(momenta_of(parts.optimizer)) {
  const auto numbers = torch::TensorOptions(torch::kInt64).device(parts.data.device());
  order_ = torch::zeros({parts.most_batches, parts.batch_size}, numbers);
  place_ = torch::zeros({1}, numbers);
}

void CapturedStep::begin_epoch(const SampleOrder& order) {
  const int64_t full = order.size() / parts_.batch_size;
  const auto numbers = torch::empty({full, parts_.batch_size}, torch::kInt64);
  auto* number = numbers.mutable_data_ptr<int64_t>();
  for (int64_t i = 0; i < numbers.numel(); ++i) number[i] = order[i];
  order_.narrow(0, 0, full).copy_(numbers);
  place_.zero_();
  next_ = 0;
}

void CapturedStep::run(int64_t number, const std::vector<int64_t>& indices, LossTrace& losses) {
  if (static_cast<int64_t>(indices.size()) != parts_.batch_size) {
    keep(work_(parts_.data.get(indices)));
  } else if (!can_replay(number)) {
    take_next();
  } else {
    if (!is_captured_) capture(number);
    parts_.graph.replay();
  }
  losses.add(number, losses_, next_++, indices);
}

// The rate lies on the device, a momentum does not. One that moves at each step is never captured.
bool CapturedStep::can_replay(int64_t number) {
  if (plain_ > 0) return --plain_, false;
  auto momenta = momenta_of(parts_.optimizer);
  if (momenta == momenta_) return true;
  momenta_ = std::move(momenta);
  if (std::exchange(is_captured_, false))
    log::info(format(
        "step {}: the momentum changed; lockstep captures a new CUDA graph once it stays constant", number));
  return false;
}

void CapturedStep::capture(int64_t number) {
  parts_.graph.capture([this] { take_next(); });
  is_captured_ = true;
  log::info(format("step {}: CUDA graph captured; later steps replay it", number));
}

void CapturedStep::take_next() {
  keep(work_(parts_.data.gather(order_.index_select(0, place_).flatten())));
}

void CapturedStep::keep(const at::Tensor& loss) {
  const torch::NoGradGuard no_grad;
  if (!losses_.defined()) losses_ = torch::zeros({parts_.most_batches}, loss.options());
  losses_.index_copy_(0, place_, loss.detach().reshape({1}));
  place_.add_(1);
}

namespace {

at::Tensor laid_out(const at::Tensor& input, ImageLayout layout) {
  return layout == ImageLayout::channels_last && input.dim() == 4
             ? input.contiguous(at::MemoryFormat::ChannelsLast)
             : input;
}

// The same, of which the model knows what it holds.
at::Tensor prefetched(Net& net, const at::Tensor& on_host, const at::Tensor& there) {
  if (on_host.is_cpu() && !there.is_cpu()) net.prefetch(there, on_host);
  return there;
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

void TrainingStep::run(int64_t number, EpochFeed& epoch, LossTrace& losses, PhaseClock& clock) {
  if (captured_) return run_captured(number, epoch, losses, clock);
  clock_ = &clock;
  batches_ = epoch.batches();
  optimizer_.zero_grad();
  clock.enter(Phase::data);
  clock.begin_step(number);
  while (const auto* batch = epoch.next_batch()) {
    const auto local = epoch.at_last() ? nullptr : model_.no_sync();  // the last one's backward exchanges
    clock.enter(Phase::forward);
    losses.add(number, learn(*batch), batch->indices);
    clock.enter(Phase::data);
    if (copies_.overlap() && !(number == last_step_ && epoch.at_last())) copies_.begin(epoch.look_ahead());
  }
  clock.enter(Phase::optimizer);
  update();
  look_for_gradients();
  clock.end_step();
}

// train.graph goes with one batch a step. What is captured has no phases, and the device's time would cost
// events between the launches.
void TrainingStep::run_captured(int64_t number, EpochFeed& epoch, LossTrace& losses, PhaseClock& clock) {
  clock.time_on_host();
  clock.enter(Phase::data);
  clock.begin_step(number);
  while (const auto* batch = epoch.next_batch()) {
    clock.enter(Phase::forward);
    captured_->run(number, batch->indices, losses);
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
  return model_.learn(prefetched(model_.net(), batch.input, laid_out(input, settings_.train.layout)), target,
                      context_);
}

StepContext TrainingStep::make_context() {
  return {.criterion =
              [this](const at::Tensor& output, const at::Tensor& wanted) {
                return task_.loss(output, wanted, loss_on(output.device()));
              },
          .backward =
              [this](const at::Tensor& loss) {
                backward(batches_ > 1 ? loss / static_cast<double>(batches_) : loss);
              },
          .autocast =
              [this] {
                const auto precision = settings_.train.precision;
                return precision == Precision::fp32 ? nullptr
                                                    : std::make_shared<Autocast>(device_.type(), precision);
              },
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

// A parameter that has had one is not looked at again. A look waits for a GPU: there, at steps 1, 2, 4, ...
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
      loss_(loss_options(setup.data, setup.team->device())),
      settings_(setup.settings),
      device_(setup.team->device()),
      last_step_(learner.rounds.total_steps),
      parameters_(model_.parameters()),
      copies_(device_),
      gradients_done_(std::make_shared<GradientsDone>()),
      context_(make_context()),
      captured_(captured_step(setup, learner)) {
  loss_.label_smoothing = settings_.train.label_smoothing;
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
  return prefetched(net, input, laid_out(on_device(input, device), layout));
}

}  // namespace lockstep::train
