// With LAB_STRICT=1 new memory is poisoned at once, when its stream has done what it had. Who still reads it
// on another stream, without having told the allocator, gets wrong numbers; so does who reads it before it is
// written.
#include <ATen/Context.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/empty_strided_native.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <optional>

#include "alias.h"
#include "kernels.h"
#include "lab.h"
#include "place.h"

namespace lab {
namespace {

template <class Value>
using Perhaps = std::optional<Value>;

at::Tensor poisoned(at::Tensor made) {
  const auto& context = at::globalContext();
  if (context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory())
    return made;                                    // is filled
  const c10::cuda::CUDAGuard guard(made.device());  // the default stream is the current device's
  const auto stream = current_stream(made.device().index());
  if (made.numel() == 0 || capturing(stream)) return made;
  C10_CUDA_CHECK(drain(stream));
  const Access access;
  poison(alias_of(made));
  return made;
}

at::Tensor empty(at::IntArrayRef size, Perhaps<at::ScalarType> type, Perhaps<at::Layout> layout,
                 Perhaps<at::Device> device, Perhaps<bool> pin, Perhaps<at::MemoryFormat> format) {
  return poisoned(at::native::empty_cuda(size, type, layout, device, pin, format));
}

at::Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef strides, Perhaps<at::ScalarType> type,
                         Perhaps<at::Layout> layout, Perhaps<at::Device> device, Perhaps<bool> pin) {
  return poisoned(at::native::empty_strided_cuda(size, strides, type, layout, device, pin));
}

}  // namespace

void add_allocations(Kernels& kernels) {
  if (!strict()) return;
  add_kernel(kernels, "empty", "memory_format", &empty);
  add_kernel(kernels, "empty_strided", "", &empty_strided);
}

}  // namespace lab
