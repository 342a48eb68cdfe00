#pragma once
// An image in memory: bytes of red, green and blue.

#include <cstdint>
#include <stdexcept>
#include <vector>

namespace lockstep::data {

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

}  // namespace lockstep::data
