#include "lockstep/comm/debug_level.h"

#include <torch/csrc/distributed/c10d/debug.h>

#include "lockstep/base/error.h"

namespace lockstep::comm {

void read_debug_level() {
  try {
    c10d::setDebugLevelFromEnvironment();
  } catch (const std::exception&) {
    throw InputError("TORCH_DISTRIBUTED_DEBUG is none of OFF, INFO, DETAIL", "environment",
                     "set it to one of these");
  }
}

}  // namespace lockstep::comm
