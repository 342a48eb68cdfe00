#pragma once
// The image in a file, PNG or JPEG as its first bytes say, whatever its name.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::data {

// An image in memory: bytes of red, green and blue.

/// Used again for one image after another: it grows, and never shrinks.
struct Pixels {
  int64_t height = 0, width = 0;
  std::vector<uint8_t> rgb;  // [height, width, 3], then what larger images left behind

  void resize(int64_t rows, int64_t columns) {
    height = rows, width = columns;
    const auto bytes = static_cast<size_t>(rows * columns * 3);
    if (rgb.size() < bytes) rgb.resize(bytes);
  }
  const uint8_t* row(int64_t y) const { return rgb.data() + y * width * 3; }
  uint8_t* row(int64_t y) { return rgb.data() + y * width * 3; }
};

/// What is wrong with an image, for whoever knows its file.
struct BadImage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// This lockstep was built without the library, named in what(), that reads such images.
struct NoDecoder : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// What Pillow refuses: a small file may claim to be a huge image.
constexpr int64_t kMostPixels = 178'956'970;

/// BadImage for more than that, or for none.
void check_pixels(int64_t width, int64_t height);

/// A file whose image cannot be read: which, and what is wrong.
struct DamagedImage : InputError {
  using InputError::InputError;
};

/// Reads one file after another; a thread has its own.
class ImageReader {
 public:
  /// Its pixels, until the next call. DamagedImage; InputError where this lockstep was built without its
  /// library.
  const Pixels& read(const std::string& path);

  /// Reads the first bytes and the last: DamagedImage where these show that it is none, or cut off.
  void check(const std::string& path);

 private:
  Pixels pixels_;
  std::vector<uint8_t> bytes_;
};

// JPEG by libjpeg-turbo, to Pillow's bits.

/// As Pillow's convert("RGB") has it: grey and CMYK become RGB, EXIF's orientation is left alone. Throws
/// BadImage for what is cut off or damaged, and where Pillow makes grey of what is missing, too.
void read_jpeg(std::span<const uint8_t> bytes, Pixels& into);

/// Looks at what stands before the pixels: BadImage where that is cut off or not to be read.
void check_jpeg_header(std::span<const uint8_t> bytes);

// PNG by libpng: an image of a folder to Pillow's bits, or one to predict from.

/// As Pillow's convert("RGB") has it, transparency and gamma left out; but 16 bits of grey become 8 as those
/// of colours do, where Pillow makes nearly all of them white. `on_black` puts transparent parts on black.
/// Throws BadImage for what is cut off or damaged.
void read_png(std::span<const uint8_t> bytes, Pixels& into, bool on_black = false);

/// Looks at what stands before the pixels: BadImage where that is cut off or not to be read.
void check_png_header(std::span<const uint8_t> bytes);

/// Whether the file begins like a PNG; an InputError where it cannot be read.
bool is_png(const std::string& path);

/// uint8 [1, channels, height, width]: 1 channel = grey, as Pillow's convert("L") has it, 3 = RGB;
/// transparent parts on black. InputError for a damaged file, another number of channels, or a program
/// without libpng.
at::Tensor read_png(const std::string& path, int64_t channels);

}  // namespace lockstep::data
