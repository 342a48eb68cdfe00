#include "lockstep/parallel/gradient_watch.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

#include "lockstep/base/format.h"
#include "lockstep/base/local_gradients.h"
#include "lockstep/base/log.h"

namespace lockstep::parallel {
namespace {

at::Tensor sum_of(const at::Tensor& parameter) {
  const at::NoGradGuard no_grad;
  const auto values = parameter.is_complex() ? at::view_as_real(parameter) : parameter;
  return values.sum(at::kDouble);
}

bool has_moved(const at::Tensor& parameter, const at::Tensor& before) {
  const auto now = sum_of(parameter);
  return !at::equal(now, before) && !(now.isnan() & before.isnan()).item<bool>();
}

}  // namespace

// The Reducer's own way: a hook behind the node that adds to a parameter's gradient.
GradientWatch::GradientWatch(const std::vector<ReducedParameter>& parameters, bool static_graph)
    : static_graph_(static_graph) {
  using torch::autograd::variable_list;
  watched_.reserve(parameters.size());
  for (const auto& parameter : parameters) {
    auto& watched = watched_.emplace_back(Watched{.parameter = parameter});
    auto accumulator = torch::autograd::impl::grad_accumulator(parameter.tensor);
    base::watch_gradient(parameter.tensor.unsafeGetTensorImpl());
    const auto key = accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
        [this, &watched](const variable_list& outputs, const variable_list&) {
          arrive(watched);
          return outputs;
        }));
    unhook_.push_back([accumulator = std::move(accumulator), key] { accumulator->del_post_hook(key); });
  }
}

GradientWatch::~GradientWatch() {
  for (const auto& unhook : unhook_) unhook();
  for (const auto& watched : watched_) base::unwatch_gradient(watched.parameter.tensor.unsafeGetTensorImpl());
}

void GradientWatch::look_for_moves() {
  std::vector<std::string> moved;
  for (auto& watched : watched_) {
    if (!watched.sum.defined()) continue;
    // a gradient that was zeroed by a zero_grad() of ours has moved nothing
    if (base::is_marked_local(watched.parameter.tensor.unsafeGetTensorImpl()) &&
        has_moved(watched.parameter.tensor, watched.sum))
      moved.push_back(watched.parameter.name);
    forget(watched);
  }
  if (moved.empty() || std::exchange(has_warned_, true)) return;
  log::warning(format(
      "{} changed after a backward that was not exchanged: the ranks' parameters may differ from now on; {}",
      base::first_of(moved), base::kExchangeGradients));
}

void GradientWatch::forget(Watched& watched) {
  watched.sum.reset();
  base::unmark_local_gradient(watched.parameter.tensor.unsafeGetTensorImpl());
}

void GradientWatch::expect(bool exchanged) {
  if (exchanged) ++exchanges_;
  learns_ = static_graph_ && exchanges_ <= 1;
  expects_ = true;
  for (auto& watched : watched_) {
    watched.arrived = 0;
    if (exchanged && watched.sum.defined()) forget(watched);
  }
}

void GradientWatch::arrive(Watched& watched) {
  ++watched.arrived;
  if (permits_local_) return;
  if (expects_ && learns_) {
    watched.usual = watched.arrived;
    return;
  }
  if (expects_ && watched.arrived <= watched.usual) return;
  mark(watched);
}

void GradientWatch::mark(Watched& watched) const {
  const auto& tensor = watched.parameter.tensor;
  if (!tensor.grad().defined()) return;
  watched.sum = sum_of(tensor);
  base::mark_local_gradient(tensor.unsafeGetTensorImpl(), tensor.grad().unsafeGetTensorImpl(),
                            watched.parameter.name);
}

}  // namespace lockstep::parallel
