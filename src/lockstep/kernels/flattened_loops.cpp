#include "lockstep/kernels/flattened_loops.h"

#include <ATen/Parallel.h>
#include <c10/util/BFloat16.h>

#include "lockstep/kernels/conv_shape.h"

namespace lockstep::kernels {

void flatten_images(const float* x, int64_t images, int64_t places, int64_t channels, uint16_t* to,
                    SimdLevel level) {
  const int64_t size = places * channels;
  at::parallel_for(0, images, 1, [&](int64_t begin, int64_t end) {
    const Scratch<float> turned(size);
    run_at(level, [&](auto lanes) LOCKSTEP_INLINE {
      for (int64_t image = begin; image < end; ++image) {
        turn(lanes, x + image * size, channels, places, channels, turned.get());
        for (int64_t i = 0; i < size; ++i)
          to[image * size + i] = c10::detail::round_to_nearest_even(turned.get()[i]);
      }
    });
  });
}

}  // namespace lockstep::kernels
