#include "nccl/errors.h"

#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "nccl/api.h"
#include "nccl/settings.h"

namespace lab::nccl {
namespace {

std::mutex last_mutex;
char last[1024] = "";  // as in NCCL, one for all communicators

}  // namespace

ncclResult_t refuse(ncclResult_t error, const std::string& text) {
  {
    const std::lock_guard lock(last_mutex);
    std::snprintf(last, sizeof last, "%s", text.c_str());
  }
  if (settings().warns) std::fprintf(stderr, "[gpulab %d] NCCL WARN %s\n", ::getpid(), text.c_str());
  return error;
}

std::string formatted(const char* format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return text;
}

}  // namespace lab::nccl

NCCL_CALL const char* ncclGetLastError(ncclComm_t) {
  thread_local char copy[1024];
  const std::lock_guard lock(lab::nccl::last_mutex);
  std::memcpy(copy, lab::nccl::last, sizeof copy);
  return copy;
}

NCCL_CALL const char* ncclGetErrorString(ncclResult_t error) {
  switch (error) {
    case ncclSuccess:
      return "no error";
    case ncclUnhandledCudaError:
      return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
    case ncclSystemError:
      return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
    case ncclInternalError:
      return "internal error - please report this issue to the NCCL developers";
    case ncclInvalidArgument:
      return "invalid argument (run with NCCL_DEBUG=WARN for details)";
    case ncclInvalidUsage:
      return "invalid usage (run with NCCL_DEBUG=WARN for details)";
    case ncclRemoteError:
      return "remote process exited or there was a network error";
    case ncclInProgress:
      return "NCCL operation in progress";
    default:
      return "unknown result code";
  }
}
