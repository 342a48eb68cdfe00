#include "lockstep/kernels/linear_relu.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <mutex>
#include <optional>
#include <utility>

#include "lockstep/base/libtorch.h"

namespace lockstep::kernels {
namespace {

using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

bool is_plain(const at::Tensor& tensor, int64_t dims) {
  return tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided && tensor.dim() == dims &&
         tensor.scalar_type() == at::kFloat && !tensor._fw_grad(/*level=*/0).defined();
}

// libtorch computes others in another order, with other bits.
bool is_known(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return is_plain(x, 2) && is_plain(weight, 2) && is_plain(bias, 1) && weight.stride(1) == 1 &&
         weight.stride(0) == weight.size(1) && x.size(1) == weight.size(1) &&
         bias.size(0) == weight.size(0) && !at::autocast::is_autocast_enabled(at::kCPU);
}

// The formulas of libtorch's AddmmBackward0, TBackward0 and ReluBackward0. Second derivatives work, too.
class LinearBackward : public torch::autograd::Node {
 public:
  LinearBackward(const at::Tensor& x, const at::Tensor& weight) : x_(x, false), weight_(weight, false) {}
  void keep(const at::Tensor& result) { result_.emplace(result, /*is_output=*/true); }

  std::string name() const override { return result_ ? "LinearReluBackward" : "LinearBackward"; }

  void release_variables() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    x_.reset_data();
    weight_.reset_data();
    if (result_) result_->reset_data();
  }

  variable_list apply(variable_list&& gradients) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto gradient = std::move(gradients[0]);
    if (!gradient.defined()) return variable_list(kInputs);
    std::optional<at::AutoDispatchBelowADInplaceOrView> no_graph;
    if (!at::GradMode::is_enabled()) no_graph.emplace();
    if (result_) gradient = at::threshold_backward(gradient, result_->unpack(getptr()), 0);
    variable_list inputs(kInputs);
    // the engine sums it over the batch, as for a bias that addmm has broadcast
    if (task_should_compute_output(kBias)) inputs[kBias] = gradient;
    if (task_should_compute_output(kX)) inputs[kX] = input_gradient(gradient);
    if (task_should_compute_output(kWeight)) inputs[kWeight] = gradient.t().mm(x_.unpack());
    return inputs;
  }

  // In addmm's order, which is the order of the gradients; the weight's comes before those of earlier layers.
  static constexpr size_t kBias = 0, kWeight = 1, kX = 2, kInputs = 3;

 private:
  at::Tensor input_gradient(const at::Tensor& gradient) {
    const auto x = x_.unpack();
    const auto weight = weight_.unpack();
    const bool by_columns = x.stride(0) == 1 && x.stride(1) == x.size(0);
    return by_columns ? weight.t().mm(gradient.t()).t() : gradient.mm(weight);
  }

  std::mutex mutex_;
  SavedVariable x_, weight_;
  std::optional<SavedVariable> result_;  // of relu
};

at::Tensor in_one_node(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, bool relu) {
  const auto node = base::make_node<LinearBackward>(x, weight);
  node->set_next_edges(torch::autograd::collect_next_edges(bias, weight, x));
  const auto result = [&] {
    const at::AutoDispatchBelowADInplaceOrView no_graph;
    auto sums = at::addmm(bias, x, weight.t());
    return relu ? sums.relu_() : sums;
  }();
  torch::autograd::set_history(result, node);
  if (relu) node->keep(result);
  return result;
}

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, bool relu) {
  if (torch::autograd::compute_requires_grad(x, weight, bias) && is_known(x, weight, bias))
    return in_one_node(x, weight, bias, relu);
  const auto sums = at::linear(x, weight, bias.defined() ? std::optional(bias) : std::nullopt);
  return relu ? at::relu(sums) : sums;
}

}  // namespace
}  // namespace lockstep::kernels

namespace lockstep {

at::Tensor linear_relu(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return kernels::linear(x, weight, bias, true);
}

at::Tensor linear_alone(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  return kernels::linear(x, weight, bias, false);
}

}  // namespace lockstep
