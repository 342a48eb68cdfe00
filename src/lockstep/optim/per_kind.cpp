#include "lockstep/optim/per_kind.h"

#include <ATen/ATen.h>

namespace lockstep {

at::Tensor laid_out_as(const at::Tensor& param, const at::Tensor& grad) {
  if (grad.strides() == param.strides()) return grad;
  for (int64_t d = 0; d < param.dim(); ++d) {
    if (param.size(d) > 1 && param.stride(d) != grad.stride(d)) return at::empty_like(param).copy_(grad);
  }
  return grad.as_strided(param.sizes(), param.strides());
}

}  // namespace lockstep
