#pragma once
// Activation checkpointing: discards a part's activations in forward and recomputes them in backward. Saves
// memory and costs time; the results are the same, bit for bit.

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <concepts>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

namespace recompute {

/// A part to compute again.
struct RecomputedPart {
  std::function<void(const std::vector<at::Tensor>& inputs)> compute;
  std::vector<at::Tensor> inputs;
  std::shared_ptr<torch::nn::Module> module = nullptr;  ///< its buffers stay as after the first time
};

/// While it lives, drops what autograd would keep in this thread. Without grad mode, or within another one,
/// it does nothing.
class ActivationDropper {
 public:
  explicit ActivationDropper(RecomputedPart part);
  ~ActivationDropper();
  ActivationDropper(ActivationDropper&&) = delete;

 private:
  struct State;
  std::unique_ptr<State> in_force_;
};

template <class Layer>
concept Held = requires(const Layer& layer) {
  { layer.ptr() } -> std::convertible_to<std::shared_ptr<torch::nn::Module>>;
};
template <class Layer>
concept Module = std::convertible_to<Layer, std::shared_ptr<torch::nn::Module>>;

template <class Function>
std::shared_ptr<torch::nn::Module> module_of(const Function& function) {
  if constexpr (Module<Function>) return function;
  if constexpr (Held<Function>) return function.ptr();
  return nullptr;
}

template <class Function, class... Inputs>
decltype(auto) call(Function& function, const Inputs&... inputs) {
  if constexpr (Module<Function> || Held<Function>) {
    return function->forward(inputs...);
  } else {
    return function(inputs...);
  }
}

template <class Function, size_t... Number>
void compute(Function& function, const std::vector<at::Tensor>& inputs, std::index_sequence<Number...>) {
  static_cast<void>(call(function, inputs[Number]...));
}

}  // namespace recompute

/// Calls `function` and returns its result; autograd keeps only the inputs, and backward calls `function`
/// again with the same random numbers and autocast. Like Python's
/// torch.utils.checkpoint(use_reentrant=False), it works with DDP, find_unused_parameters and several
/// backwards. `function` is a module (std::shared_ptr, or a holder such as torch::nn::Linear) or any copyable
/// callable. It returns a tensor, or anything with tensors in it. Capture arguments that are not tensors.
/// Both calls must do the same: a module's buffers (BatchNorm's statistics) are restored after the second
/// call, but other side effects happen twice. Backward throws Error if an input was changed in place, or if
/// the second call differs from the first. If `function` itself runs a backward, that must stay on one GPU.
template <class Function, std::same_as<at::Tensor>... Inputs>
auto checkpoint_activations(Function function, const Inputs&... inputs) {
  const auto again = [function](const std::vector<at::Tensor>& kept) mutable {
    recompute::compute(function, kept, std::index_sequence_for<Inputs...>());
  };
  const recompute::ActivationDropper dropping({again, {inputs...}, recompute::module_of(function)});
  return recompute::call(function, inputs...);
}

}  // namespace lockstep
