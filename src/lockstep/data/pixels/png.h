#pragma once
// PNG by libpng: an image of a folder to Pillow's bits, or one to predict from.

#include <ATen/core/Tensor.h>

#include <span>
#include <string>

#include "lockstep/data/pixels/pixels.h"

namespace lockstep::data {

/// As Pillow's convert("RGB") has it, transparency and gamma left out; but 16 bits of grey become 8 as those
/// of colours do, where Pillow makes nearly all of them white. Throws BadImage for what is cut off or
/// damaged.
void read_png(std::span<const uint8_t> bytes, Pixels& into);

/// Looks at what stands before the pixels: BadImage where that is cut off or not to be read.
void check_png_header(std::span<const uint8_t> bytes);

/// Whether the file begins like a PNG; an InputError where it cannot be read.
bool is_png(const std::string& path);

/// uint8 [1, channels, height, width]: 1 channel = grey, 3 = RGB; transparent parts on black. Colours become
/// grey as Pillow's convert("L") has it, 16 bits become 8.
/// Throws InputError for a damaged file, another number of channels, more than `most_pixels`, or a program
/// built without libpng.
at::Tensor read_png(const std::string& path, int64_t channels, int64_t most_pixels = int64_t{1} << 28);

}  // namespace lockstep::data
