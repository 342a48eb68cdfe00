#pragma once
// NCCL's process group with asynchronous errors on, the job's timeout, and an orderly end.

#include "lockstep/comm/cuda_plugin.h"

namespace lockstep::cuda {

void record_hangs_in(const std::string& folder, int rank);
c10::intrusive_ptr<c10d::Backend> make_nccl(const comm::NcclRequest& request);

}  // namespace lockstep::cuda
