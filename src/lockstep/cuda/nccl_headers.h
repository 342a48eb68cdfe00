#pragma once
// NCCL's headers, as this was compiled with them and as libtorch was: ProcessGroupNCCL::Options holds an
// ncclConfig_t by value, which grows with NCCL's minor versions.

#include <cstddef>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"

namespace lockstep::cuda {

/// NCCL's version code, as its header has it (23007 is 2.30.7), and the size of an ncclConfig_t.
struct NcclHeaders {
  int version = 0;
  size_t config_size = 0;
};

inline std::string minor_version(const NcclHeaders& headers) {
  return format("{}.{}", headers.version / 10000, headers.version / 100 % 100);
}

/// Throws if the two have different layouts of Options.
inline void require_same(const NcclHeaders& ours, const NcclHeaders& libtorchs) {
  if (ours.config_size == libtorchs.config_size && minor_version(ours) == minor_version(libtorchs)) return;
  throw Error(format("the CUDA plug-in was compiled with NCCL {} headers, but libtorch with NCCL {} headers",
                     minor_version(ours), minor_version(libtorchs)),
              "liblockstep_cuda.so",
              format("build it with NCCL {} headers: -DNCCL_ROOT=FOLDER", minor_version(libtorchs)))
      .of(Code::nccl);
}

}  // namespace lockstep::cuda
