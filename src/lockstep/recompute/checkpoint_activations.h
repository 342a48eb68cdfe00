#pragma once
// Activation checkpointing: drops what a part of a model would keep for backward, and computes it again in
// backward. Saves memory, costs time; the bits are the same.

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

/// What `function` gives for the inputs, with less memory: autograd keeps only the inputs, and backward
/// computes the rest again, with the same random numbers and autocast. As Python's
/// torch.utils.checkpoint(use_reentrant=False): it works with DDP, find_unused_parameters and several
/// backwards. `function` is a module (std::shared_ptr, or a holder such as torch::nn::Linear) or any copyable
/// callable; it returns a tensor, or anything with tensors in it. Capture arguments that are not tensors. It
/// is called twice, and must do the same both times: a module's buffers (BatchNorm's statistics) are restored
/// after the second time; other side effects happen twice. Error in backward where an input was changed in
/// place, by the function or after it, or where the second time differs from the first. A backward that the
/// function itself runs must stay on one GPU.
template <class Function, std::same_as<at::Tensor>... Inputs>
auto checkpoint_activations(Function function, const Inputs&... inputs) {
  const auto again = [function](const std::vector<at::Tensor>& kept) mutable {
    recompute::compute(function, kept, std::index_sequence_for<Inputs...>());
  };
  const recompute::ActivationDropper dropping({again, {inputs...}, recompute::module_of(function)});
  return recompute::call(function, inputs...);
}

}  // namespace lockstep
