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

/// Pillow's image.crop(part).resize((width, height), BILINEAR).crop(window), of which only the window is
/// computed.
struct Scaling {
  Box part;
  int64_t height = 0, width = 0;
  Box window;
};

/// Keeps its memory from one image to the next; a thread has its own.
class Resampler {
 public:
  /// The window's pixels, until the next call.
  const Pixels& scale(const Pixels& image, const Scaling& scaling);

 private:
  /// Which of the given places lie under each wanted one, and how much each counts.
  struct Weights {
    std::vector<int32_t> first, count, share;  // `most` shares a place
    int64_t most = 0;
    std::vector<double> exact;
    void set(int64_t given, int64_t wanted, int64_t begin, int64_t places);
  };

  /// Rows of pixels somewhere.
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

// Which part of an image is looked at: its middle, or for training another part each epoch.

/// What is drawn again for an image each epoch.
struct Augment {
  bool crop = false, flip = false;
};

struct View {
  Scaling scaling;
  bool flipped = false;
};

/// torchvision's Resize and CenterCrop: the image is scaled until it just covers height x width, and what
/// stands over at two sides is cut off.
View middle_view(int64_t image_height, int64_t image_width, int64_t height, int64_t width);

/// torchvision's RandomResizedCrop (8 to 100 % of the area, sides of 3:4 to 4:3) and RandomHorizontalFlip
/// (one half) by their own rules, drawn for the sample's number and the epoch alone: whoever makes the
/// sample, and when, makes the same.
View drawn_view(int64_t image_height, int64_t image_width, int64_t height, int64_t width, Augment augment,
                uint64_t seed, int64_t epoch, int64_t sample);

}  // namespace lockstep::data
