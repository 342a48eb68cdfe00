#pragma once
// Refusals: the text that ncclGetLastError gives.
#include <nccl.h>

#include <string>

namespace lab::nccl {

/// Keeps the text, prints it where NCCL_DEBUG asks for warnings, and gives the error back.
ncclResult_t refuse(ncclResult_t error, const std::string& text);

std::string formatted(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace lab::nccl
