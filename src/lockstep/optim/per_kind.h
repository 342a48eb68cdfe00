#pragma once
// Kernels over many tensors take those of one device and one type at a time, as Python groups them.

#include <ATen/ATen.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

namespace lockstep::optim {

/// Parameters that no fused kernel takes.
inline bool any_complex(const std::vector<at::Tensor>& params) {
  return std::any_of(params.begin(), params.end(),
                     [](const at::Tensor& param) { return param.is_complex(); });
}

/// Calls work(slots) for each device and type; once, without a copy, where all are alike.
template <class Slot, class Work>
void per_kind(const std::vector<Slot>& slots, const Work& work) {
  const auto kind_of = [](const Slot& slot) {
    return std::pair(slot.param.device().index(), slot.param.scalar_type());
  };
  const auto first = kind_of(slots.front());
  if (std::all_of(slots.begin(), slots.end(), [&](const Slot& slot) { return kind_of(slot) == first; }))
    return work(slots);
  std::map<std::pair<c10::DeviceIndex, at::ScalarType>, std::vector<Slot>> kinds;
  for (const auto& slot : slots) kinds[kind_of(slot)].push_back(slot);
  for (const auto& [kind, alike] : kinds) work(alike);
}

}  // namespace lockstep::optim

namespace lockstep {

// One layout for a parameter and its gradient, to the stride: what libtorch's fused optimisers insist on.

/// The gradient with the parameter's strides: itself where only dimensions of one element differ, else a
/// copy.
inline at::Tensor laid_out_as(const at::Tensor& param, const at::Tensor& grad) {
  if (grad.strides() == param.strides()) return grad;
  for (int64_t d = 0; d < param.dim(); ++d) {
    if (param.size(d) > 1 && param.stride(d) != grad.stride(d)) return at::empty_like(param).copy_(grad);
  }
  return grad.as_strided(param.sizes(), param.strides());
}

// What to do about a value that an optimiser does not take.

inline constexpr const char* kNotNegative = "give a number that is 0 or more";

}  // namespace lockstep
