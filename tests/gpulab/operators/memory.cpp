#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/clone_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/empty_strided_native.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <optional>

#include "boxed.h"
#include "lab.h"
#include "tensors.h"

namespace lab {
namespace {

Work copying(const at::Tensor& to, const at::Tensor& from) {
  return [to, from] {
    const at::AutoDispatchBelowADInplaceOrView below;
    pause();
    to.copy_(from);
  };
}

/// Puts the copy behind what the stream has. A captured stream does it now as well, so that the operators
/// that are captured next meet sensible values.
void put(cudaStream_t stream, const at::Tensor& to, const at::Tensor& from, const char* what) {
  const Work work = copying(to, from);
  if (capturing(stream) && device_of(to.const_data_ptr()) >= 0) {
    undo(stream, [snapshot = Snapshot(to)] { snapshot.restore(); });
    work();
  }
  C10_CUDA_CHECK(enqueue(stream, work, what));
}

void wait(cudaStream_t waiting, at::Device waiting_device, cudaStream_t stream, at::Device device) {
  cudaEvent_t event = nullptr;
  {
    const c10::cuda::CUDAGuard guard(device);
    C10_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    C10_CUDA_CHECK(cudaEventRecord(event, stream));
  }
  const c10::cuda::CUDAGuard guard(waiting_device);
  C10_CUDA_CHECK(cudaStreamWaitEvent(waiting, event, 0));
  C10_CUDA_CHECK(cudaEventDestroy(event));
}

void copy_on_device(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::copy_", "");
  torch::jit::Stack stack{to, from, non_blocking};
  run_on_cpu(op, &stack);
}

/// On the source's stream; the two devices' streams wait for each other before and after.
void copy_to_peer(const at::Tensor& to, const at::Tensor& from) {
  const auto source = current_stream(from.device().index()), target = current_stream(to.device().index());
  wait(source, from.device(), target, to.device());
  {
    const c10::cuda::CUDAGuard guard(from.device());
    put(source, alias_of(to), alias_of(from), "peer copy");
  }
  wait(target, to.device(), source, from.device());
}

void copy_from_host(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  const c10::cuda::CUDAGuard guard(to.device());
  const auto stream = current_stream(to.device().index());
  const bool is_pinned = from.numel() == 0 || pinned(from.const_data_ptr());
  if (non_blocking && is_pinned) return put(stream, alias_of(to), from, "copy from the host");
  if (!non_blocking || capturing(stream)) host_waits(stream);
  const at::Tensor staged = non_blocking ? from.clone() : from;
  put(stream, alias_of(to), staged, "copy from the host");
  if (!non_blocking) C10_CUDA_CHECK(cudaStreamSynchronize(stream));
}

void copy_to_host(const at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  const c10::cuda::CUDAGuard guard(from.device());
  const auto stream = current_stream(from.device().index());
  const bool is_pinned = to.numel() == 0 || pinned(to.const_data_ptr());
  const bool waits = !non_blocking || !is_pinned;
  if (waits) host_waits(stream);
  put(stream, to, alias_of(from), "copy to the host");
  if (waits) C10_CUDA_CHECK(cudaStreamSynchronize(stream));
}

at::Tensor& copy(at::Tensor& to, const at::Tensor& from, bool non_blocking) {
  if (to.is_same(from)) return to;
  for (const at::Tensor* tensor : {static_cast<const at::Tensor*>(&to), &from})
    TORCH_CHECK_NOT_IMPLEMENTED(on_gpu(*tensor) || tensor->is_cpu(), "gpulab: a copy of a tensor on ",
                                tensor->device(), " that is ", tensor->layout());
  const at::AutoDispatchBelowADInplaceOrView below;
  if (to.is_cuda() && from.device() == to.device()) {
    copy_on_device(to, from, non_blocking);
    return to;
  }
  if (to.is_cuda() && from.is_cuda()) {
    copy_to_peer(to, from);
  } else if (to.is_cuda()) {
    copy_from_host(to, from, non_blocking);
  } else {
    copy_to_host(to, from, non_blocking);
  }
  return to;
}

void copy_each(at::TensorList to, at::TensorList from, bool non_blocking) {
  for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i], non_blocking);
}

// With LAB_STRICT=1 new memory is poisoned at once, when its stream has done what it had. Who still reads it
// on another stream, without having told the allocator, gets wrong numbers; as before it is written.

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

void add_memory(Kernels& kernels) {
  add_kernel(kernels, "copy_", "", &copy);
  add_kernel(kernels, "_foreach_copy_", "", &copy_each);
  if (!strict()) return;
  add_kernel(kernels, "empty", "memory_format", &empty);
  add_kernel(kernels, "empty_strided", "", &empty_strided);
}

}  // namespace lab
