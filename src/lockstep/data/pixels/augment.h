#pragma once
// Which part of an image is looked at: its middle, or for training another part each epoch.

#include <cstdint>

#include "lockstep/data/pixels/resample.h"

namespace lockstep::data {

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
