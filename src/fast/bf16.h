#pragma once
// bfloat16, two by two: a pair of products is added to a float at once, where the processor does that.

#include <cstdint>

namespace lockstep::kernels {

/// Whether this processor has the loops below (AVX512_BF16 and AVX512_VBMI2), and libtorch may use them.
bool multiplies_bf16();

/// To the nearest, of two the even one; what is too small for a normal number is zero.
void round_to_bf16(const float* from, int64_t count, uint16_t* to);

/// As many as registers hold.
constexpr int kPairTiles = 14, kPairChannels = 32, kPairBlock = 16;

/// A tile of 4 x 4 pixels to Winograd's domain, and rounded there: to[16 places][blocks][tile][16]; `to` is
/// this tile's first, `row` how far a pixel is from the one below it.
void transform_pixels(const float* corner, int64_t row, int64_t channels, uint16_t* to);

/// to[tile][channel] = x[blocks][tile][16] times weight[blocks * 8][channel][2]
void multiply_pairs(const uint16_t* x, const uint16_t* weight, int64_t blocks, float* to);

/// How far one of nine taps is from the one below it, and from the next in its row.
struct TapStrides {
  int64_t row, step;
};

/// Adds to nine taps of 32 channels each, what lies there in x: for each of `count` pairs of places, which
/// are counted in numbers, times its two values. The channels of x come out as in_order() takes them.
void add_pairs(const int32_t* places, const uint16_t* values, int64_t count, const uint16_t* x,
               TapStrides of_x, float* to, TapStrides of_sums);

/// Places, and for each a value.
struct PairList {
  uint16_t *places, *values;
};

/// The same from places that are `apart`.
void add_pairs(const PairList& list, int64_t apart, int64_t count, const uint16_t* x, TapStrides of_x,
               float* to, TapStrides of_sums);

/// Of a window's channels those that have a gradient, two by two, a list for each of four places that win:
/// one that is left over has another of value zero. Channels are multiples of 32, and a list has room for 32
/// more. Writes how many pairs each has.
void list_pairs(const uint16_t* gradient, const uint8_t* winner, int64_t channels, const PairList* to,
                int64_t* pairs);

/// 32 channels that add_pairs() has added to, in order again; or such as it shall bring in order.
void in_order(float* channels);

}  // namespace lockstep::kernels
