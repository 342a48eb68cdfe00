#pragma once
// The team of the job's ranks.

#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/comm/connect.h"
#include "lockstep/parallel/team.h"
#include "ranks.h"

namespace lockstep::test {

inline const Team& team() {
  static const Team instance(runtime().job(), comm::connect(runtime(), {}), at::kCPU);
  return instance;
}

}  // namespace lockstep::test
