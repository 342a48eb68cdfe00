#include "lockstep/optim/grad_scaler.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <map>

#include "lockstep/base/error.h"

namespace lockstep {

GradScaler::GradScaler(at::Device device, GradScalerOptions options) : options_(options) {
  const auto on = at::TensorOptions().device(device);
  scale_ = at::full({}, options.init_scale, on.dtype(at::kFloat));
  growth_tracker_ = at::zeros({}, on.dtype(at::kInt));
  found_inf_ = at::zeros({}, on.dtype(at::kFloat));
}

at::Tensor GradScaler::scale(const at::Tensor& loss) const {
  return loss * scale_;
}

void GradScaler::unscale_(Optimizer& optimizer) {
  if (unscaled_)
    throw Error("unscale_() has already been called since the last update().", "GradScaler",
                "call update() after each step()");
  const torch::NoGradGuard no_grad;
  // the kernel takes those of one device and one dtype at a time
  std::map<std::pair<int, at::ScalarType>, std::vector<at::Tensor>> grads;
  for (const auto& param : optimizer.parameters()) {
    if (!param.grad().defined()) continue;
    if (param.grad().scalar_type() == at::kHalf)
      throw Error("Attempting to unscale FP16 gradients.", "GradScaler",
                  "keep the parameters in float32 and let autocast compute in fp16");
    grads[{param.grad().device().index(), param.grad().scalar_type()}].push_back(param.grad());
  }
  // The reciprocal in double, as Python takes it.
  const auto inverse = scale_.to(at::kDouble).reciprocal().to(at::kFloat);
  found_inf_.zero_();
  for (auto& [kind, list] : grads) {
    auto found = found_inf_.to(list.front().device());  // itself, on the first device
    at::_amp_foreach_non_finite_check_and_unscale_(list, found, inverse.to(found.device()));
    if (!found.is_same(found_inf_)) found_inf_.copy_(found);
  }
  if (share_) share_(found_inf_);
  unscaled_ = true;
}

bool GradScaler::step(Optimizer& optimizer) {
  if (!unscaled_) unscale_(optimizer);
  if (found_inf_.item<float>() != 0) return false;
  optimizer.step();
  return true;
}

void GradScaler::update() {
  const torch::NoGradGuard no_grad;
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf_, options_.growth_factor, options_.backoff_factor,
                         options_.growth_interval);
  unscaled_ = false;
}

double GradScaler::current_scale() const {
  return scale_.item<double>();
}

Tree GradScaler::state_dict() const {
  return make_dict({{"scale", current_scale()},
                    {"growth_factor", options_.growth_factor},
                    {"backoff_factor", options_.backoff_factor},
                    {"growth_interval", options_.growth_interval},
                    {"_growth_tracker", growth_tracker_.item<int64_t>()}});
}

void GradScaler::load_state_dict(const Tree& state) {
  const torch::NoGradGuard no_grad;
  scale_.fill_(as_double(get(state, "scale"), "scale"));
  options_.growth_factor = as_double(get(state, "growth_factor"), "growth_factor");
  options_.backoff_factor = as_double(get(state, "backoff_factor"), "backoff_factor");
  options_.growth_interval = as_int(get(state, "growth_interval"), "growth_interval");
  growth_tracker_.fill_(as_int(get(state, "_growth_tracker"), "_growth_tracker"));
}

}  // namespace lockstep
