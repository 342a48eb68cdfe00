#pragma once
// The levels that this processor has.

#include <vector>

#include "lockstep/kernels/level.h"

namespace lockstep::kernels {

inline std::vector<SimdLevel> levels() {
  std::vector<SimdLevel> all;
  for (const auto one : {SimdLevel::portable, SimdLevel::avx2, SimdLevel::avx512})
    if (one <= level()) all.push_back(one);
  return all;
}

}  // namespace lockstep::kernels
