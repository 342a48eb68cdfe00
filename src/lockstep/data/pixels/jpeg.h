#pragma once
// JPEG by libjpeg-turbo, to Pillow's bits.

#include <cstdint>
#include <span>

#include "lockstep/data/pixels/pixels.h"

namespace lockstep::data {

/// As Pillow's convert("RGB") has it: grey and CMYK become RGB, EXIF's orientation is left alone. Throws
/// BadImage for what is cut off or damaged, and where Pillow makes grey of what is missing, too.
void read_jpeg(std::span<const uint8_t> bytes, Pixels& into);

/// Looks at what stands before the pixels: BadImage where that is cut off or not to be read.
void check_jpeg_header(std::span<const uint8_t> bytes);

}  // namespace lockstep::data
