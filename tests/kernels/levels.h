#pragma once
// The levels that this processor has.

#include <vector>

#include "lockstep/kernels/level.h"

namespace lockstep::kernels {

inline std::vector<Level> levels() {
  std::vector<Level> all;
  for (const auto one : {Level::portable, Level::avx2, Level::avx512})
    if (one <= level()) all.push_back(one);
  return all;
}

}  // namespace lockstep::kernels
