#pragma once
// Activation checkpointing: what a part of a model would keep for backward is dropped, and computed again
// when backward comes to it. Memory for time; the bits are the same.

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <concepts>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep {

/// How a part is computed again.
struct CheckpointOptions {
  bool preserve_rng_state = true;  ///< with the random numbers of the first time: dropout drops the same
};

namespace recompute {

/// What is computed again.
struct RecomputedPart {
  std::function<void(const std::vector<at::Tensor>& inputs)> compute;
  std::vector<at::Tensor> inputs;
  std::shared_ptr<torch::nn::Module> module = nullptr;  ///< whose buffers stay as the first time left them
};

/// While it lives, what autograd would keep in this thread is dropped instead. Where no gradient is asked
/// for, or within another one, it changes nothing.
class Dropping {
 public:
  Dropping(RecomputedPart part, const CheckpointOptions& options);
  ~Dropping();
  Dropping(const Dropping&) = delete;
  Dropping& operator=(const Dropping&) = delete;

 private:
  struct InForce;
  std::unique_ptr<InForce> in_force_;
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

/// What `function` gives for the inputs, with less memory: of all that autograd would keep within it the
/// inputs alone stay, and backward computes the rest again, under the same autocast. As Python's
/// torch.utils.checkpoint(use_reentrant=False): DDP sees no difference, with find_unused_parameters and
/// several backwards, too. `function` is a module (std::shared_ptr, or a holder such as torch::nn::Linear) or
/// anything that can be called and copied; it gives a tensor, or anything with tensors in it. What is no
/// tensor is captured. It is called twice, and must do the same both times: a module's buffers (BatchNorm's
/// statistics) are put back after the second time; what a function writes elsewhere is written twice.
/// Error in backward where an input was changed in place, by the function or after it, or where the second
/// time is unlike the first. A backward that the function runs of its own must stay on one GPU.
template <class Function, std::same_as<at::Tensor>... Inputs>
auto checkpoint_activations(const CheckpointOptions& options, Function function, const Inputs&... inputs) {
  const auto again = [function](const std::vector<at::Tensor>& kept) mutable {
    recompute::compute(function, kept, std::index_sequence_for<Inputs...>());
  };
  const recompute::Dropping dropping({again, {inputs...}, recompute::module_of(function)}, options);
  return recompute::call(function, inputs...);
}
/// The same with the usual options.
template <class Function, std::same_as<at::Tensor>... Inputs>
requires(!std::same_as<Function, CheckpointOptions>) auto checkpoint_activations(Function function,
                                                                                 const Inputs&... inputs) {
  return checkpoint_activations(CheckpointOptions{}, std::move(function), inputs...);
}

}  // namespace lockstep
