#pragma once
// bfloat16, two by two: a pair of products is added to a float at once, where the processor does that.

#include <cstdint>

namespace lockstep::kernels {

/// What products are made of; what they are added to is of floats.
enum class Products { floats, bf16 };

/// Whether this processor has the loops below (AVX512_BF16), and libtorch was not told to use less.
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

/// Adds to nine taps of 32 channels each, `step` apart, what lies there in x: for each of `count` pairs of
/// places, which are counted in numbers, times its two values. See in_order().
void add_pairs(const int32_t* places, const uint16_t* values, int64_t count, const uint16_t* x, int64_t row,
               int64_t step, float* to);

/// The 32 channels that add_pairs() has added to, in order again.
void in_order(float* channels);

}  // namespace lockstep::kernels
