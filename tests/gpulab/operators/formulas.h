#pragma once
// Operators that only CUDA has, by formula in operators that both have.
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <tuple>
#include <vector>

namespace lab {

/// In float where the type is a half precision.
inline at::Tensor widened(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  return type == at::kHalf || type == at::kBFloat16 ? tensor.to(at::kFloat) : tensor;
}

inline bool has(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined();
}

}  // namespace lab
