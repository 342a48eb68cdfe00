#include "lockstep/data/pixels/resample.h"

#include <ATen/core/PhiloxRNGEngine.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace lockstep::data {
namespace {

constexpr int kPrecision = 32 - 8 - 2;  // bits behind the point: Resample.c's

// Truncated, not rounded: Resample.c adds the half itself.
int64_t whole(double value) {
  return static_cast<int64_t>(value);
}

uint8_t byte_of(int32_t sum) {
  return static_cast<uint8_t>(std::clamp(sum >> kPrecision, 0, 255));
}

// The order matters, since each pass rounds. Since Pillow 13, the height comes first if it loses more than
// twice as many rows as the width loses columns.
bool goes_down_first(const Box& part, int64_t height, int64_t width) {
  const int64_t rows_less = part.height - height, columns_less = part.width - width;
  return columns_less != 0 && rows_less > 0 && rows_less > 2 * columns_less;
}

}  // namespace

// Resample.c's precompute_coeffs and normalize_coeffs_8bpc, with every number rounded where they round it.
void Resampler::Weights::set(int64_t given, int64_t wanted, int64_t begin, int64_t places) {
  const double scale = static_cast<double>(given) / static_cast<double>(wanted);
  const double spread = std::max(scale, 1.0);  // bilinear reaches one pixel to each side, of the coarser ones
  most = static_cast<int64_t>(std::ceil(spread)) * 2 + 1;
  first.resize(places), count.resize(places), share.assign(places * most, 0), exact.resize(most);
  const double narrowing = 1.0 / spread;
  for (int64_t i = 0; i < places; ++i) {
    const double center = (static_cast<double>(begin + i) + 0.5) * scale;
    const int64_t from = std::max<int64_t>(whole(center - spread + 0.5), 0);
    const int64_t to = std::min(whole(center + spread + 0.5), given);
    double all = 0;
    for (int64_t k = 0; k < to - from; ++k) {
      const double away = std::abs((static_cast<double>(k + from) - center + 0.5) * narrowing);
      all += exact[k] = away < 1.0 ? 1.0 - away : 0.0;
    }
    for (int64_t k = 0; k < to - from; ++k) {
      const double part = all != 0.0 ? exact[k] / all : exact[k];
      share[i * most + k] = static_cast<int32_t>(whole(0.5 + part * (1 << kPrecision)));
    }
    first[i] = static_cast<int32_t>(from), count[i] = static_cast<int32_t>(to - from);
  }
}

void Resampler::across(Rows from, int64_t skipped, Pixels& into) const {
  for (int64_t y = 0; y < into.height; ++y) {
    uint8_t* out = into.row(y);
    for (int64_t x = 0; x < into.width; ++x, out += 3) {
      const uint8_t* in = from[y] + int64_t{3} * (columns_.first[x] - skipped);
      const int32_t* share = columns_.share.data() + x * columns_.most;
      int32_t red = 1 << (kPrecision - 1), green = red, blue = red;
      for (int32_t k = 0; k < columns_.count[x]; ++k, in += 3)
        red += in[0] * share[k], green += in[1] * share[k], blue += in[2] * share[k];
      out[0] = byte_of(red), out[1] = byte_of(green), out[2] = byte_of(blue);
    }
  }
}

void Resampler::down(Rows from, int64_t skipped, Pixels& into) {
  const int64_t bytes = into.width * 3;
  sums_.resize(bytes);
  int32_t* const sums = sums_.data();
  for (int64_t y = 0; y < into.height; ++y) {
    std::fill_n(sums, bytes, 1 << (kPrecision - 1));
    for (int32_t k = 0; k < rows_.count[y]; ++k) {
      const uint8_t* in = from[rows_.first[y] + k - skipped];
      const int32_t share = rows_.share[y * rows_.most + k];
      for (int64_t i = 0; i < bytes; ++i) sums[i] += in[i] * share;
    }
    uint8_t* out = into.row(y);
    for (int64_t i = 0; i < bytes; ++i) out[i] = byte_of(sums[i]);
  }
}

const Pixels& Resampler::down_then_across(const Pixels& image, const Scaling& scaling) {
  const auto& [part, height, width, window] = scaling;
  rows_.set(part.height, height, window.top, window.height);
  columns_.set(part.width, width, window.left, window.width);
  const int64_t top = rows_.first.front(), left = columns_.first.front();
  low_.resize(window.height, columns_.first.back() + columns_.count.back() - left);
  down({image.row(part.top + top) + (part.left + left) * 3, image.width * 3}, top, low_);
  scaled_.resize(window.height, window.width);
  across({low_.row(0), low_.width * 3}, left, scaled_);
  return scaled_;
}

const Pixels& Resampler::scale(const Pixels& image, const Scaling& scaling) {
  const auto& [part, height, width, window] = scaling;
  if (goes_down_first(part, height, width)) return down_then_across(image, scaling);
  const bool narrows = part.width != width, shortens = part.height != height;
  int64_t top = window.top, rows = window.height;  // of the part, that are asked for
  if (shortens) {
    rows_.set(part.height, height, window.top, window.height);
    top = rows_.first.front();
    rows = rows_.first.back() + rows_.count.back() - top;
  }
  const int64_t stride = image.width * 3;
  Rows from{image.row(part.top + top) + part.left * 3, stride};
  if (narrows) {
    columns_.set(part.width, width, window.left, window.width);
    narrow_.resize(rows, window.width);
    across(from, 0, narrow_);
    if (!shortens) return narrow_;
    from = {narrow_.row(0), narrow_.width * 3};
  } else {
    from.start += window.left * 3;
  }
  scaled_.resize(window.height, window.width);
  if (shortens) {
    down(from, top, scaled_);
  } else {
    for (int64_t y = 0; y < rows; ++y) std::memcpy(scaled_.row(y), from[y], scaled_.width * 3);
  }
  return scaled_;
}

namespace {

constexpr double kLeastArea = 0.08;
constexpr double kNarrowest = 3.0 / 4, kWidest = 4.0 / 3;
constexpr int kTries = 10;
constexpr int kDrawsOfAnEpoch = 20;  // 2^20 blocks of four numbers; 45 of these numbers are the most

/// Philox, keyed by the seed and counted by sample and epoch.
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

// The largest part in the middle with sides from 3:4 to 4:3.
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
