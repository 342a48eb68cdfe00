#include "lockstep/kernels/level.h"

#include <ATen/Version.h>

namespace lockstep::kernels {

Level level_of(std::string_view capability) {
  if (capability == "AVX512") return Level::avx512;
  return capability == "AVX2" ? Level::avx2 : Level::portable;
}

Level level() {
  static const Level here = level_of(at::get_cpu_capability());
  return here;
}

}  // namespace lockstep::kernels
