#include "lockstep/kernels/level.h"

#include <ATen/Version.h>

namespace lockstep::kernels {

SimdLevel level_of(std::string_view capability) {
  if (capability == "AVX512") return SimdLevel::avx512;
  return capability == "AVX2" ? SimdLevel::avx2 : SimdLevel::portable;
}

SimdLevel level() {
  static const SimdLevel here = level_of(at::get_cpu_capability());
  return here;
}

}  // namespace lockstep::kernels
