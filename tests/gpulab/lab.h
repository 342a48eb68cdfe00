#pragma once
// What the pretended runtime offers to the pretended NCCL and to what replaces libtorch's CUDA kernels.
// Tests of logic only: nothing here says anything about speed, transports or real kernels.

#include <cuda_runtime_api.h>

#include <functional>

namespace lab {

using Work = std::function<void()>;

/// Puts work behind what the stream has, to be run in order by a thread of the stream's own; a stream that is
/// being captured takes it as a node of its graph. `what` names it in messages.
cudaError_t enqueue(cudaStream_t stream, Work work, const char* what);
/// Waits until all that the stream has now is done. Not for a stream that is being captured.
cudaError_t drain(cudaStream_t stream);
bool capturing(cudaStream_t stream);
/// Done when the capture of the stream ends, latest first: what was written meanwhile is put back.
void undo(cudaStream_t stream, Work work);

/// Of a pointer into a device's memory, or -1.
int device_of(const void* pointer);
/// Of a page-locked host pointer.
bool pinned(const void* pointer);
int current_device();

/// A failure that stays: every later call on the device returns it, as after a device-side assert.
void fail_device(int device, cudaError_t error);
/// Counts an op, and fails the device at the one that LAB_FAIL_AFTER_OPS names.
void perhaps_fail(int device);

/// Takes as long as copies and collectives take: LAB_DELAY_MS.
void pause();
/// LAB_STRICT=1: what an op writes reaches device memory only when its stream gets there.
bool strict();

/// Prints a message on stderr, once for each text.
void say(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace lab
