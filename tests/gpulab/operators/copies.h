#pragma once
// Copies between devices, and to and from the host.
#include <ATen/core/Tensor.h>

namespace lab {

at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking);
void copy_each(at::TensorList to, at::TensorList from, bool non_blocking);

}  // namespace lab
