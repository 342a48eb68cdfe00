// Products whose result has a wider type than the factors.
#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>

#include "formulas.h"
#include "kernels.h"

namespace lab {
namespace {

using at::Tensor;
using Scalar = at::Scalar;
using Type = at::ScalarType;

Tensor& put_into(Tensor& out, const Tensor& result) {
  out.resize_(result.sizes());
  return out.copy_(result);
}

Tensor mm_as(const Tensor& a, const Tensor& b, Type type) {
  return at::mm(a.to(type), b.to(type));
}
Tensor bmm_as(const Tensor& a, const Tensor& b, Type type) {
  return at::bmm(a.to(type), b.to(type));
}
Tensor addmm_as(const Tensor& c, const Tensor& a, const Tensor& b, Type type, const Scalar& beta,
                const Scalar& alpha) {
  return at::addmm(c.to(type), a.to(type), b.to(type), beta, alpha);
}
Tensor baddbmm_as(const Tensor& c, const Tensor& a, const Tensor& b, Type type, const Scalar& beta,
                  const Scalar& alpha) {
  return at::baddbmm(c.to(type), a.to(type), b.to(type), beta, alpha);
}
Tensor& mm_to(const Tensor& a, const Tensor& b, Type type, Tensor& out) {
  return put_into(out, mm_as(a, b, type));
}
Tensor& bmm_to(const Tensor& a, const Tensor& b, Type type, Tensor& out) {
  return put_into(out, bmm_as(a, b, type));
}
Tensor& addmm_to(const Tensor& c, const Tensor& a, const Tensor& b, Type type, const Scalar& beta,
                 const Scalar& alpha, Tensor& out) {
  return put_into(out, addmm_as(c, a, b, type, beta, alpha));
}
Tensor& baddbmm_to(const Tensor& c, const Tensor& a, const Tensor& b, Type type, const Scalar& beta,
                   const Scalar& alpha, Tensor& out) {
  return put_into(out, baddbmm_as(c, a, b, type, beta, alpha));
}

}  // namespace

void add_matmul_of_type(Kernels& kernels) {
  add_kernel(kernels, "mm", "dtype", &mm_as);
  add_kernel(kernels, "mm", "dtype_out", &mm_to);
  add_kernel(kernels, "bmm", "dtype", &bmm_as);
  add_kernel(kernels, "bmm", "dtype_out", &bmm_to);
  add_kernel(kernels, "addmm", "dtype", &addmm_as);
  add_kernel(kernels, "addmm", "dtype_out", &addmm_to);
  add_kernel(kernels, "baddbmm", "dtype", &baddbmm_as);
  add_kernel(kernels, "baddbmm", "dtype_out", &baddbmm_to);
}

}  // namespace lab
