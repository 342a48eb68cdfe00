#include "nccl/mismatch.h"

#include "lab.h"
#include "nccl/settings.h"

namespace lab::nccl {

void hang_over(Comm& comm, const std::string& mismatch) {
  if (!mismatch.empty()) say("NCCL: %s: a hang on GPUs", mismatch.c_str());
  if (settings().mismatch_is_error) comm.fail(ncclInvalidUsage, mismatch);
  comm.wait_for_abort();
}

}  // namespace lab::nccl
