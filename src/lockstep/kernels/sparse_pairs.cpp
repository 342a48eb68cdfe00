#include "lockstep/kernels/sparse_pairs.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>

#include "lockstep/kernels/bf16.h"
#include "lockstep/kernels/conv_shape.h"

namespace lockstep::kernels {
namespace {

// [out][taps][in], as add_pairs() brings in order what it adds up
void round_weights(const ConvShape& shape, const float* weight, uint16_t* to) {
  const int64_t size = shape.out * kTaps * shape.in;
  const Scratch<float> turned(size);
  std::copy_n(weight, size, turned.get());
  for (int64_t i = 0; i < size; i += kPairChannels) in_order(turned.get() + i);
  round_to_bf16(turned.get(), size, to);
}

// The gradients of one image that are not zero, two by two: window by window, by who won.
class WindowPairs {
 public:
  explicit WindowPairs(const ConvShape& shape)
      : size_(shape.windows() * shape.out),
        windows_(shape.windows()),
        out_(shape.out),
        turned_(size_),
        rounded_(size_),
        lists_(2 * kNobody * room()) {
    for (int k = 0; k < kNobody; ++k)
      list_[k] = {lists_.get() + 2 * k * room(), lists_.get() + (2 * k + 1) * room()};
  }

  void take(const PooledGradient& gradient, int64_t image) {
    run_at(SimdLevel::avx512, [&](auto lanes) LOCKSTEP_INLINE {
      turn(lanes, gradient.values + image * size_, windows_, out_, windows_, turned_.get());
    });
    round_to_bf16(turned_.get(), size_, rounded_.get());
    winner_ = gradient.winner + image * size_;
  }

  void read(int64_t window) {
    list_pairs(rounded_.get() + window * out_, winner_ + window * out_, out_, list_, pairs_);
  }
  const PairList& list(int k) const { return list_[k]; }
  int64_t pairs(int k) const { return pairs_[k]; }

 private:
  int64_t room() const { return out_ + kPairChannels; }

  int64_t size_, windows_, out_;
  Scratch<float> turned_;
  Scratch<uint16_t> rounded_, lists_;
  PairList list_[kNobody];
  int64_t pairs_[kNobody] = {};
  const uint8_t* winner_ = nullptr;
};

}  // namespace

bool fits_pairs(const ConvShape& shape) {
  return shape.in % kPairChannels == 0 && shape.out % kPairChannels == 0 &&
         shape.out <= std::numeric_limits<uint16_t>::max();
}

void sparse_input_gradient_of_pairs(const ConvShape& shape, const PooledGradient& gradient,
                                    const float* weight, float* x) {
  const Scratch<uint16_t> weights(shape.out * kTaps * shape.in);
  round_weights(shape, weight, weights.get());
  const Apart taps = {3 * shape.in, shape.in}, pixels = {shape.padded_row(), shape.in};
  at::parallel_for(0, shape.images, 1, [&](int64_t begin, int64_t end) {
    const Scratch<float> padded(shape.padded_size());
    WindowPairs windows(shape);
    for (int64_t image = begin; image < end; ++image) {
      windows.take(gradient, image);
      std::fill_n(padded.get(), shape.padded_size(), 0.0f);
      for (int64_t window = 0; window < shape.windows(); ++window) {
        windows.read(window);
        for (int k = 0; k < kNobody; ++k) {
          float* to = padded.get() + shape.corner(window) + k / 2 * pixels.row + k % 2 * pixels.step;
          for (int64_t in = 0; windows.pairs(k) > 0 && in < shape.in; in += kPairChannels)
            add_pairs(windows.list(k), kTaps * shape.in, windows.pairs(k), weights.get() + in, taps, to + in,
                      pixels);
        }
      }
      unpad(padded.get(), shape, x + image * shape.image_size());
    }
  });
}

}  // namespace lockstep::kernels
