#pragma once
// Images scaled as Pillow 13 scales them, bit for bit: bilinear and antialiased, in fixed point.

#include <cstdint>
#include <vector>

#include "lockstep/data/pixels/image_file.h"

namespace lockstep::data {

/// A rectangle of pixels.
struct Box {
  int64_t top = 0, left = 0, height = 0, width = 0;
};

/// Pillow's image.crop(part).resize((width, height), BILINEAR).crop(window). Computes only the window.
struct Scaling {
  Box part;
  int64_t height = 0, width = 0;
  Box window;
};

/// Reuses its memory. Each thread has its own.
class Resampler {
 public:
  /// The window's pixels, until the next call.
  const Pixels& scale(const Pixels& image, const Scaling& scaling);

 private:
  /// The given places under each wanted one, and their shares.
  struct Weights {
    std::vector<int32_t> first, count, share;  // `most` shares a place
    int64_t most = 0;
    std::vector<double> exact;
    void set(int64_t given, int64_t wanted, int64_t begin, int64_t places);
  };

  struct Rows {
    const uint8_t* start;
    int64_t stride;
    const uint8_t* operator[](int64_t y) const { return start + y * stride; }
  };

  // `from` begins `skipped` columns, or rows, into the part.
  void across(Rows from, int64_t skipped, Pixels& into) const;
  void down(Rows from, int64_t skipped, Pixels& into);
  const Pixels& down_then_across(const Pixels& image, const Scaling& scaling);

  Weights columns_, rows_;
  std::vector<int32_t> sums_;
  Pixels narrow_, low_, scaled_;
};

/// Random changes of an image in each epoch.
struct Augment {
  bool crop = false, flip = false;
};

struct View {
  Scaling scaling;
  bool flipped = false;
};

/// torchvision's Resize and CenterCrop: scales the image to just cover height x width, and crops two sides.
View middle_view(int64_t image_height, int64_t image_width, int64_t height, int64_t width);

/// torchvision's RandomResizedCrop (8 to 100 % of the area, sides of 3:4 to 4:3) and RandomHorizontalFlip
/// (one half). The draw depends only on the seed, the epoch and the sample's number.
View drawn_view(int64_t image_height, int64_t image_width, int64_t height, int64_t width, Augment augment,
                uint64_t seed, int64_t epoch, int64_t sample);

}  // namespace lockstep::data
