#include "lockstep/data/pixels/augment.h"

#include <ATen/core/PhiloxRNGEngine.h>

#include <cmath>
#include <optional>

namespace lockstep::data {
namespace {

constexpr double kLeastArea = 0.08;
constexpr double kNarrowest = 3.0 / 4, kWidest = 4.0 / 3;
constexpr int kTries = 10;
constexpr int kDrawsOfAnEpoch = 20;  // 2^20 blocks of four numbers; 45 of these numbers are the most

/// Numbers by their place: Philox, keyed by the seed and counted by sample and epoch.
class Draws {
 public:
  Draws(uint64_t seed, int64_t epoch, int64_t sample)
      : numbers_(seed, static_cast<uint64_t>(sample), static_cast<uint64_t>(epoch) << kDrawsOfAnEpoch) {}
  double between(double low, double high) {
    return low + (high - low) * (static_cast<double>(numbers_()) / 4294967296.0);
  }
  int64_t below(int64_t end) {
    return static_cast<int64_t>(uint64_t{numbers_()} * static_cast<uint64_t>(end) >> 32);
  }

 private:
  at::Philox4_32 numbers_;
};

int64_t rounded(double value) {
  return static_cast<int64_t>(std::nearbyint(value));  // halves to even, as Python's round()
}

// The largest part in the middle whose sides are not too unlike.
Box middle_part(int64_t height, int64_t width) {
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  int64_t rows = height, columns = width;
  if (ratio < kNarrowest) rows = rounded(static_cast<double>(width) / kNarrowest);
  if (ratio > kWidest) columns = rounded(static_cast<double>(height) * kWidest);
  return {(height - rows) / 2, (width - columns) / 2, rows, columns};
}

Box drawn_part(Draws& draws, int64_t height, int64_t width) {
  const double area = static_cast<double>(height * width);
  for (int i = 0; i < kTries; ++i) {
    const double target = area * draws.between(kLeastArea, 1.0);
    const double ratio = std::exp(draws.between(std::log(kNarrowest), std::log(kWidest)));
    const int64_t columns = rounded(std::sqrt(target * ratio)), rows = rounded(std::sqrt(target / ratio));
    if (columns < 1 || rows < 1 || columns > width || rows > height) continue;
    const int64_t top = draws.below(height - rows + 1);
    return {top, draws.below(width - columns + 1), rows, columns};
  }
  return middle_part(height, width);
}

int64_t middle_of(int64_t whole, int64_t part) {
  return rounded(static_cast<double>(whole - part) / 2);
}

}  // namespace

View middle_view(int64_t image_height, int64_t image_width, int64_t height, int64_t width) {
  Scaling scaling{.part = {0, 0, image_height, image_width}, .height = height, .width = width, .window = {}};
  if (height * image_width >= width * image_height) {
    scaling.width = height * image_width / image_height;
  } else {
    scaling.height = width * image_height / image_width;
  }
  scaling.window = {middle_of(scaling.height, height), middle_of(scaling.width, width), height, width};
  return {scaling, false};
}

View drawn_view(int64_t image_height, int64_t image_width, int64_t height, int64_t width, Augment augment,
                uint64_t seed, int64_t epoch, int64_t sample) {
  Draws draws(seed, epoch, sample);
  const bool flipped = augment.flip && draws.between(0, 1) < 0.5;
  if (!augment.crop) {
    auto view = middle_view(image_height, image_width, height, width);
    view.flipped = flipped;
    return view;
  }
  return {{drawn_part(draws, image_height, image_width), height, width, {0, 0, height, width}}, flipped};
}

}  // namespace lockstep::data
