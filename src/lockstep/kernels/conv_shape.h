#pragma once
// What the loops of a convolution of 3 x 3 with padding 1 and a pool of 2 x 2 behind it agree on.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace lockstep::kernels {

constexpr int kTaps = 9;

/// Images lie channels last.
struct ConvShape {
  int64_t images, in, out;  // in, out: channels
  int64_t height, width;    // of an image, and so of what the convolution makes of it

  int64_t high() const { return height / 2; }
  int64_t wide() const { return width / 2; }
  int64_t windows() const { return high() * wide(); }
  int64_t image_size() const { return height * width * in; }
  int64_t padded_row() const { return (width + 2) * in; }
  int64_t padded_size() const { return (height + 2) * padded_row(); }
  /// Where the 4 x 4 pixels that a window sees begin in a padded image.
  int64_t corner(int64_t window) const {
    return 2 * (window / wide()) * padded_row() + 2 * (window % wide()) * in;
  }
};

/// Memory that a loop works in, on a cache line.
template <class T>
class Scratch {
 public:
  explicit Scratch(int64_t count)
      : values_(static_cast<T*>(::operator new(static_cast<size_t>(count) * sizeof(T), kLine))) {
    std::memset(static_cast<void*>(values_.get()), 0, static_cast<size_t>(count) * sizeof(T));
  }
  T* get() const { return values_.get(); }

 private:
  static constexpr std::align_val_t kLine{64};
  struct Free {
    void operator()(T* values) const { ::operator delete(values, kLine); }
  };
  std::unique_ptr<T, Free> values_;
};

/// Into the middle of one whose border is zero, row by row.
template <class T, class Copy>
void pad(const float* image, const ConvShape& shape, T* padded, const Copy& copy) {
  const int64_t row = shape.width * shape.in;
  for (int64_t y = 0; y < shape.height; ++y)
    copy(image + y * row, row, padded + (y + 1) * shape.padded_row() + shape.in);
}

inline void pad(const float* image, const ConvShape& shape, float* padded) {
  pad(image, shape, padded, std::copy_n<const float*, int64_t, float*>);
}

/// And back.
inline void unpad(const float* padded, const ConvShape& shape, float* image) {
  const int64_t row = shape.width * shape.in;
  for (int64_t y = 0; y < shape.height; ++y)
    std::memcpy(image + y * row, padded + (y + 1) * shape.padded_row() + shape.in,
                static_cast<size_t>(row) * sizeof(float));
}

}  // namespace lockstep::kernels
