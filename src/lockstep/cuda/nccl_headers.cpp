#include "lockstep/cuda/nccl_headers.h"

#include <new>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

namespace lockstep::cuda {

NcclHeaders own_headers() {
  return {NCCL_VERSION_CODE, sizeof(ncclConfig_t)};
}

// The constructor is in libtorch's library, and fills in what NCCL_CONFIG_INITIALIZER was there. Its object
// may be larger than this file believes, and is never taken down.
NcclHeaders libtorchs_headers() {
  using Options = c10d::ProcessGroupNCCL::Options;
  constexpr size_t kRoom = sizeof(Options) + 4096;
  static unsigned char* room =
      static_cast<unsigned char*>(::operator new (kRoom, std::align_val_t{alignof(Options)}));
  static const auto* options = new (room) Options();
  return {static_cast<int>(options->config.version), options->config.size};
}

}  // namespace lockstep::cuda
