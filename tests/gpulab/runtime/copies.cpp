// Copies take place when the stream gets there: pinned memory is read and written then, pageable memory as
// CUDA does, before the call returns.
#include <cstring>
#include <memory>
#include <vector>

#include "../lab.h"
#include "capture.h"
#include "devices.h"

using namespace pretended;

namespace {

bool is_on_device(const void* pointer) {
  return lab::device_of(pointer) >= 0;
}

bool is_pageable(const void* pointer) {
  return !is_on_device(pointer) && !lab::pinned(pointer);
}

cudaMemcpyKind kind_of(const void* to, const void* from) {
  if (is_on_device(to)) return is_on_device(from) ? cudaMemcpyDeviceToDevice : cudaMemcpyHostToDevice;
  return is_on_device(from) ? cudaMemcpyDeviceToHost : cudaMemcpyHostToHost;
}

cudaError_t check(const void* to, const void* from, cudaMemcpyKind kind, cudaStream_t stream) {
  if (kind != cudaMemcpyDefault && kind != kind_of(to, from)) {
    lab::say("a copy of kind %d whose pointers are of kind %d", kind, kind_of(to, from));
    return cudaErrorInvalidValue;
  }
  const bool pageable = is_pageable(to) || is_pageable(from);
  return pageable && lab::capturing(stream) ? unsafe("a copy of pageable memory") : cudaSuccess;
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (const auto error = enter()) return give(error);
  if (const auto error = check(to, from, kind, stream)) return give(error);
  auto staged = std::make_shared<std::vector<char>>();
  if (is_pageable(from)) {
    const char* first = static_cast<const char*>(from);
    staged->assign(first, first + bytes);
    from = staged->data();
  }
  const auto work = [to, from, bytes, staged] {
    lab::pause();
    std::memmove(to, from, bytes);
  };
  const auto error = lab::enqueue(stream, work, "copy");
  return error == cudaSuccess && is_pageable(to) ? lab::drain(stream) : error;
}

cudaError_t fill(void* to, int value, size_t bytes, cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (is_pageable(to)) return give(cudaErrorInvalidValue);
  return lab::enqueue(
      stream, [=] { std::memset(to, value, bytes); }, "memset");
}

}  // namespace

extern "C" {

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return copy(to, from, bytes, kind, stream);
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  if (const auto error = unsafe("cudaMemcpy")) return give(error);
  if (const auto error = cudaMemcpyAsync(to, from, bytes, kind, nullptr)) return error;
  return lab::drain(nullptr);
}

cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream);
}

cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return fill(to, value, bytes, stream);
}

cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  if (const auto error = unsafe("cudaMemset")) return give(error);
  return fill(to, value, bytes, nullptr);
}

}  // extern "C"
