#pragma once
// The image in a file: PNG or JPEG as its first bytes say, whatever its name.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep::data {

/// Red, green and blue bytes of an image. Reused from image to image: the memory grows and never shrinks.
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

/// The flaw of an image; the caller knows its file.
struct BadImage : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// This lockstep was built without the library, named in what(), that reads such images.
struct NoDecoder : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// A file whose image cannot be read: which, and why.
struct DamagedImage : InputError {
  using InputError::InputError;
};

/// Reads one file after another. Each thread has its own.
class ImageReader {
 public:
  /// Its pixels, until the next call. DamagedImage; InputError if this build lacks the library.
  const Pixels& read(const std::string& path);
  /// The same from the bytes of a file, which errors call `path`.
  const Pixels& read(std::span<const uint8_t> bytes, const std::string& path);

  /// Looks at the first and the last bytes, and reads the whole file if these are not those of an image:
  /// DamagedImage if that fails.
  void check(const std::string& path);
  void check(std::span<const uint8_t> bytes, const std::string& path);

 private:
  Pixels pixels_;
  std::vector<uint8_t> bytes_;
};

/// By libjpeg-turbo, with the bits of Pillow's convert("RGB"): gray and CMYK become RGB, EXIF's orientation
/// is ignored. BadImage for a truncated or damaged file, also if Pillow fills the missing part with gray.
void read_jpeg(std::span<const uint8_t> bytes, Pixels& into);

/// By libpng, with the bits of Pillow's convert("RGB"), transparency and gamma ignored. Unlike Pillow, which
/// makes most of 16-bit gray white, it keeps the upper 8 bits. `on_black` puts transparent parts on black.
/// BadImage for a truncated or damaged file.
void read_png(std::span<const uint8_t> bytes, Pixels& into, bool on_black = false);

/// Whether the file begins like a PNG; InputError if it cannot be read.
bool is_png(const std::string& path);

/// uint8 [1, channels, height, width]: 1 channel = gray, as Pillow's convert("L"), 3 = RGB; transparent parts
/// on black. InputError for a damaged file, another number of channels, or a program without libpng.
at::Tensor read_png(const std::string& path, int64_t channels);

}  // namespace lockstep::data
