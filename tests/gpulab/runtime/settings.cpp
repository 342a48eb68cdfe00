// Settings, messages, and the texts of CUDA's errors. Nothing here is ever destroyed: threads may speak while
// the process ends.
#include "settings.h"

#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "../lab.h"

namespace pretended {
namespace {

const char* text(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value ? value : nullptr;
}

long rank() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "RANK", "SLURM_PROCID"})
    if (text(variable)) return number(variable, 0);
  return 0;
}

}  // namespace

long number(const char* variable, long otherwise) {
  const char* value = text(variable);
  if (!value) return otherwise;
  char* end = nullptr;
  const long result = std::strtol(value, &end, 10);
  if (*end == '\0') return result;
  std::fprintf(stderr, "[gpulab] %s is '%s', which is no number\n", variable, value);
  std::abort();
}

bool fails_here() {
  return number("LAB_FAIL_RANK", 0) == rank();
}

}  // namespace pretended

namespace lab {

void pause() {
  static const std::chrono::milliseconds delay(pretended::number("LAB_DELAY_MS", 0));
  if (delay.count() > 0) std::this_thread::sleep_for(delay);
}

bool strict() {
  static const bool value = pretended::number("LAB_STRICT", 0) != 0;
  return value;
}

void say(const char* format, ...) {
  static auto& mutex = *new std::mutex;
  static auto& said = *new std::set<std::string>;
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  const std::lock_guard lock(mutex);
  if (said.insert(text).second) std::fprintf(stderr, "[gpulab %d] %s\n", ::getpid(), text);
}

}  // namespace lab

namespace {

struct Error {
  cudaError_t code;
  const char* name;
  const char* text;
};

// Those that this library gives.
#define ERROR(name, text) \
  { name, #name, text }
constexpr Error kErrors[] = {
    ERROR(cudaSuccess, "no error"),
    ERROR(cudaErrorInvalidValue, "invalid argument"),
    ERROR(cudaErrorMemoryAllocation, "out of memory"),
    ERROR(cudaErrorInitializationError, "initialization error"),
    ERROR(cudaErrorCudartUnloading, "driver shutting down"),
    ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR(cudaErrorIllegalState, "the operation cannot be performed in the present state"),
    ERROR(cudaErrorNotReady, "device not ready"),
    ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    ERROR(cudaErrorPeerAccessUnsupported, "peer access is not supported between these two devices"),
    ERROR(cudaErrorHostMemoryAlreadyRegistered,
          "part or all of the requested memory range is already mapped"),
    ERROR(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory region"),
    ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    ERROR(cudaErrorNotSupported, "operation not supported (by the laboratory's imitation of CUDA)"),
    ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    ERROR(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    ERROR(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture sequences"),
    ERROR(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began"),
    ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    ERROR(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    ERROR(cudaErrorStreamCaptureImplicit,
          "operation would make the legacy stream depend on a capturing blocking stream"),
    ERROR(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
    ERROR(cudaErrorStreamCaptureWrongThread,
          "attempt to terminate a thread-local capture sequence from another thread"),
};
#undef ERROR

const Error* find(cudaError_t code) {
  const auto found = std::find_if(std::begin(kErrors), std::end(kErrors),
                                  [code](const Error& one) { return one.code == code; });
  return found == std::end(kErrors) ? nullptr : found;
}

}  // namespace

extern "C" {

const char* cudaGetErrorName(cudaError_t error) {
  const Error* known = find(error);
  return known ? known->name : "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
  const Error* known = find(error);
  return known ? known->text : "unrecognized error code";
}

}  // extern "C"
