#include "tools/bench/trainee.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "lockstep/base/error.h"
#include "tools/bench/clock.h"

namespace lockstep::bench {
namespace {

DdpOptions options_of(const train::Setup& setup, const Method& method) {
  DdpOptions options;
  options.find_unused_parameters = setup.settings.ddp.find_unused_parameters;
  options.bucket_cap_mb = method.bucket_cap_mb;
  return options;
}

}  // namespace

comm::AlgorithmBackend& all_reduce_of(const ProcessGroup& group) {
  auto* backend = dynamic_cast<comm::AlgorithmBackend*>(group->getBackend(c10::kCPU).get());
  if (backend) return *backend;
  throw InputError("this bench slows messages down, and the backend's own all-reduce has none",
                   "launch.allreduce", "set it to an algorithm: ring, say");
}

Trainee::Trainee(const train::Setup& setup, Method method)
    : setup_(setup),
      method_(std::move(method)),
      model_(ddp(train::seeded_model(setup), setup.team->group(), options_of(setup, method_))),
      optimizer_(make_optimizer(setup.settings.optim, model_->parameters())),
      last_gradient_(std::make_shared<Clock::time_point>()) {
  watch_last_gradient();
}

// Backward reaches the first parameters last: from there on it waits for the exchange alone.
void Trainee::watch_last_gradient() {
  auto parameters = model_->parameters();
  for (size_t i = 0; i < std::min<size_t>(2, parameters.size()); ++i) {
    if (parameters[i].requires_grad())
      parameters[i].register_hook([last = last_gradient_](const at::Tensor&) { *last = Clock::now(); });
  }
}

double Trainee::learn(const Batch& batch) {
  const auto loss = setup_.task->loss(model_->forward(batch.input), batch.target, {});
  loss.backward();
  return loss.item<double>();
}

// All gradients in one row, when all are there.
void Trainee::exchange_all() {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> rows, gradients;
  for (const auto& parameter : model_->parameters()) {
    if (!parameter.grad().defined()) continue;
    gradients.push_back(parameter.grad());
    rows.push_back(gradients.back().reshape({-1}));
  }
  std::vector<at::Tensor> all = {at::cat(rows).div_(setup_.team->world())};
  setup_.team->group()->allreduce(all)->wait();
  int64_t at = 0;
  for (auto& gradient : gradients) {
    gradient.copy_(all[0].narrow(0, at, gradient.numel()).view(gradient.sizes()));
    at += gradient.numel();
  }
}

Step Trainee::step(const Batch& batch) {
  const auto& all_reduce = all_reduce_of(setup_.team->group());
  setup_.team->barrier();
  const double busy = all_reduce.busy();
  const auto begin = Clock::now();
  optimizer_->zero_grad();
  Step step;
  if (method_.exchange == Exchange::in_buckets) {
    step.loss = learn(batch);
  } else {
    const auto alone = model_->no_sync();
    step.loss = learn(batch);
  }
  if (method_.exchange == Exchange::after_backward) exchange_all();
  if (method_.exchange != Exchange::none) step.shows = since(*last_gradient_);
  optimizer_->step();
  step.seconds = since(begin);
  step.busy = all_reduce.busy() - busy;
  return step;
}

}  // namespace lockstep::bench
