#pragma once
// The gradients behind a pool that are not zero, one after the other: what a loop over them reads.

#include <algorithm>

#include "lockstep/kernels/conv_shape.h"
#include "lockstep/kernels/level.h"

namespace lockstep::kernels {

/// Values, and for each how far what it is multiplied by lies from the first, in floats.
struct Listed {
  int32_t* at;
  float* values;
};

/// Memory for lists of up to `most`, and what a register writes beyond their end.
class Lists {
 public:
  Lists(int64_t count, int64_t most) : most_(most + 16), at_(count * most_), values_(count * most_) {}
  Listed operator[](int64_t list) const { return {at_.get() + list * most_, values_.get() + list * most_}; }

 private:
  int64_t most_;
  Scratch<int32_t> at_;
  Scratch<float> values_;
};

/// Of windows side by side those that have a gradient: at[i] = corners[i] + steps[winner[i]]. How many there
/// are.
int64_t list_windows(const float* values, const uint8_t* winner, const int32_t* corners, const int32_t* steps,
                     int64_t count, SimdLevel level, Listed to);

/// Of a window's channels those that have a gradient, a list for each place that wins, at = channel * step. A
/// channel's value is `stride` from the next one's; there are multiples of 16. Writes counts[4].
void list_channels(const float* values, int64_t stride, const uint8_t* winner, int64_t count, int32_t step,
                   SimdLevel level, const Listed* to, int32_t* counts);

}  // namespace lockstep::kernels
