#pragma once
// One PNG as bytes, for predict.

#include <ATen/core/Tensor.h>

#include <string>

namespace lockstep::data {

/// Whether the file begins like a PNG; an InputError where it cannot be read.
bool is_png(const std::string& path);

/// uint8 [1, channels, height, width]: 1 channel = grey, 3 = RGB; transparent parts on black. Colours become
/// grey as Pillow's convert("L") has it, 16 bits become 8.
/// Throws InputError for a damaged file, another number of channels, more than `most_pixels`, or a program
/// built without libpng.
at::Tensor read_png(const std::string& path, int64_t channels, int64_t most_pixels = int64_t{1} << 28);

}  // namespace lockstep::data
