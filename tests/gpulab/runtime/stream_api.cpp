#include <utility>

#include "capture.h"
#include "context.h"
#include "streams.h"

using namespace pretended;

namespace lab {

cudaError_t enqueue(cudaStream_t handle, Work work, const char* what) {
  const auto stream = find_stream(handle);
  if (!stream) return give(cudaErrorInvalidResourceHandle);
  if (const auto error = state_of(stream->device)) return give(error);
  activate(stream->device);
  Node node{std::move(work), what};
  {
    const std::lock_guard lock(capture_lock());
    if (stream->capture) return give(stream->capture->take(stream, std::move(node)));
  }
  submit(stream, std::move(node));
  return cudaSuccess;
}

cudaError_t drain(cudaStream_t handle) {
  const auto stream = find_stream(handle);
  if (!stream) return give(cudaErrorInvalidResourceHandle);
  if (const auto error = state_of(stream->device)) return give(error);
  stream->drain();
  return give(state_of(stream->device));
}

}  // namespace lab

extern "C" {

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  if (const auto error = enter()) return give(error);
  *stream = make_stream(this_device(), flags, priority);
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

// What it has is still done.
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return give(destroy_stream(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  const auto stream = find_stream(handle);
  if (!stream) return give(cudaErrorInvalidResourceHandle);
  *priority = stream->priority;
  return cudaSuccess;
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  const auto stream = find_stream(handle);
  if (!stream) return give(cudaErrorInvalidResourceHandle);
  *flags = stream->flags;
  return cudaSuccess;
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int* device) {
  const auto stream = find_stream(handle);
  if (!stream) return give(cudaErrorInvalidResourceHandle);
  *device = stream->device;
  return cudaSuccess;
}

cudaError_t cudaStreamGetId(cudaStream_t handle, unsigned long long* id) {
  const auto stream = find_stream(handle);
  if (!stream) return give(cudaErrorInvalidResourceHandle);
  *id = stream->id;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  const auto stream = find_stream(handle);
  if (!stream) return give(cudaErrorInvalidResourceHandle);
  if (const auto error = refuse_captured(stream)) return give(error);
  if (const auto error = unsafe("cudaStreamSynchronize")) return give(error);
  return lab::drain(handle);
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  const auto stream = find_stream(handle);
  if (!stream) return give(cudaErrorInvalidResourceHandle);
  if (const auto error = refuse_captured(stream)) return give(error);
  if (const auto error = state_of(stream->device)) return give(error);
  return stream->idle() ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize() {
  if (const auto error = unsafe("cudaDeviceSynchronize")) return give(error);
  if (const auto error = enter()) return give(error);
  drain_device(this_device());
  return give(state_of(this_device()));
}

cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t callback, void* data, unsigned) {
  return lab::enqueue(
      stream, [=] { callback(stream, cudaSuccess, data); }, "callback");
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return lab::enqueue(
      stream, [=] { function(data); }, "host function");
}

}  // extern "C"
