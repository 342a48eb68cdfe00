#include "lockstep/kernels/sparse_conv_loops.h"

#include <ATen/Parallel.h>

#include <algorithm>

#include "lockstep/kernels/conv_shape.h"
#include "lockstep/kernels/sparse_lists.h"
#include "lockstep/kernels/sparse_pairs.h"

namespace lockstep::kernels {
namespace {

// How many vectors of input channels a sum holds at once: nine taps of each, as registers go.
template <int lanes>
constexpr int kVectors = lanes == 16 ? 2 : 1;

// The gradients of one output channel of one image that are not zero, and where what they are of begins.
class Channel {
 public:
  explicit Channel(const ConvShape& shape)
      : shape_(shape),
        lists_(1, shape.windows()),
        list_(lists_[0]),
        corners_(shape.windows()),
        turned_(shape.out * shape.windows()),
        rounded_(shape.windows() + 1) {
    for (int64_t window = 0; window < shape.windows(); ++window)
      corners_.get()[window] = static_cast<int32_t>(shape.corner(window));
    for (int k = 0; k < kNobody; ++k)
      steps_[k] = static_cast<int32_t>(k / 2 * shape.padded_row() + k % 2 * shape.in);
  }

  // The winners of an image, for channels from begin to end
  LOCKSTEP_INLINE void turn_winners(const PooledGradient& gradient, int64_t image, int64_t begin,
                                    int64_t end) {
    const int64_t windows = shape_.windows();
    turn(Lanes<16>(), gradient.winner + image * windows * shape_.out + begin, shape_.out, windows,
         end - begin, turned_.get() + begin * windows);
  }

  void read(const PooledGradient& gradient, int64_t image, int64_t out, SimdLevel level) {
    const int64_t windows = shape_.windows();
    count_ = list_windows(gradient.values + (image * shape_.out + out) * windows,
                          turned_.get() + out * windows, corners_.get(), steps_, windows, level, list_);
  }

  // The same two by two: one that is left over has another of value zero.
  void round() {
    round_to_bf16(list_.values, count_, rounded_.get());
    if (count_ % 2 == 0) return;
    rounded_.get()[count_] = 0;
    list_.at[count_] = list_.at[count_ - 1];
  }
  int64_t pairs() const { return (count_ + 1) / 2; }
  const uint16_t* rounded() const { return rounded_.get(); }

  // In four sums, which do not wait for each other.
  float sum() const {
    Floats<4> sums = {};
    int64_t i = 0;
    for (; i + 4 <= count_; i += 4) sums += load<Floats<4>>(list_.values + i);
    for (; i < count_; ++i) sums[i % 4] += list_.values[i];
    return (sums[0] + sums[1]) + (sums[2] + sums[3]);
  }

  int64_t count() const { return count_; }
  const Listed& list() const { return list_; }

 private:
  const ConvShape& shape_;
  Lists lists_;
  Listed list_;
  Scratch<int32_t> corners_;
  Scratch<uint8_t> turned_;
  Scratch<uint16_t> rounded_;
  int32_t steps_[kNobody] = {};
  int64_t count_ = 0;
};

template <int lanes, int many>
LOCKSTEP_INLINE inline void add_taps(const ConvShape& shape, const Channel& channel, const float* x,
                                     float* to) {
  using V = Floats<lanes>;
  const int64_t row = shape.padded_row(), step = shape.in;
  V sums[kTaps][many] = {};
  const auto [places, values] = channel.list();
  for (int64_t i = 0; i < channel.count(); ++i) {
    const float* corner = x + places[i];
    const float value = values[i];
    unrolled<kTaps>([&](auto tap) LOCKSTEP_INLINE {
      const float* from = corner + tap / 3 * row + tap % 3 * step;
      unrolled<many>([&](auto v) LOCKSTEP_INLINE { sums[tap][v] += load<V>(from + v * lanes) * value; });
    });
  }
  unrolled<kTaps * many>([&](auto i) LOCKSTEP_INLINE {
    float* sum = to + i / many * step + i % many * lanes;
    store(sum, load<V>(sum) + sums[i / many][i % many]);
  });
}

// An image as a list's places count it, and what is multiplied at them.
class PaddedFloats {
 public:
  explicit PaddedFloats(const ConvShape& shape) : shape_(shape), image_(shape.padded_size()) {}

  void take(const float* image) { pad(image, shape_, image_.get()); }

  template <int lanes>
  LOCKSTEP_INLINE void add(Channel& channel, float* to) const {
    constexpr int many = kVectors<lanes>;
    int64_t in = 0;
    for (; in + many * lanes <= shape_.in; in += many * lanes)
      add_taps<lanes, many>(shape_, channel, image_.get() + in, to + in);
    for (; in < shape_.in; in += lanes) add_taps<lanes, 1>(shape_, channel, image_.get() + in, to + in);
  }
  static void finish(float*, int64_t) {}

 private:
  const ConvShape& shape_;
  Scratch<float> image_;
};

class PaddedPairs {
 public:
  explicit PaddedPairs(const ConvShape& shape) : shape_(shape), image_(shape.padded_size()) {}

  void take(const float* image) { pad(image, shape_, image_.get(), round_to_bf16); }

  template <int lanes>
  void add(Channel& channel, float* to) const {
    channel.round();
    for (int64_t in = 0; in < shape_.in; in += kPairChannels)
      add_pairs(channel.list().at, channel.rounded(), channel.pairs(), image_.get() + in,
                {shape_.padded_row(), shape_.in}, to + in, {3 * shape_.in, shape_.in});
  }
  static void finish(float* weight, int64_t count) {
    for (int64_t i = 0; i < count; i += kPairChannels) in_order(weight + i);
  }

 private:
  const ConvShape& shape_;
  Scratch<uint16_t> image_;
};

// The gradients of one image, window by window, by who won; the last list is of those that nobody has.
class Windows {
 public:
  explicit Windows(const ConvShape& shape)
      : shape_(shape), lists_(shape.windows() * kLists, shape.out), counts_(shape.windows() * kLists) {}

  void read(const PooledGradient& gradient, int64_t image, int32_t step, SimdLevel level) {
    const int64_t windows = shape_.windows(), channels = shape_.out;
    const float* values = gradient.values + image * channels * windows;
    const uint8_t* winner = gradient.winner + image * windows * channels;
    for (int64_t window = 0; window < windows; ++window) {
      Listed to[kLists];
      for (int k = 0; k < kLists; ++k) to[k] = list(window, k);
      list_channels(values + window, windows, winner + window * channels, channels, step, level, to,
                    counts_.get() + window * kLists);
    }
  }

  Listed list(int64_t window, int k) const { return lists_[window * kLists + k]; }
  int32_t count(int64_t window, int k) const { return counts_.get()[window * kLists + k]; }

 private:
  static constexpr int kLists = kNobody + 1;
  const ConvShape& shape_;
  Lists lists_;
  Scratch<int32_t> counts_;
};

// weight [out][taps][lanes]; x: some channels of the pixels that the window sees
template <int lanes>
LOCKSTEP_INLINE inline void add_window(const ConvShape& shape, const Windows& windows, int64_t window,
                                       const float* weight, float* x) {
  using V = Floats<lanes>;
  constexpr int side = 4;
  V sums[side * side] = {};
  unrolled<4>([&](auto k) LOCKSTEP_INLINE {
    const auto [places, values] = windows.list(window, k);
    const int32_t count = windows.count(window, k);
    for (int32_t i = 0; i < count; ++i) {
      const float* from = weight + places[i];
      const float value = values[i];
      unrolled<kTaps>([&](auto tap) LOCKSTEP_INLINE {
        constexpr int pixel = (tap / 3 + k / 2) * side + tap % 3 + k % 2;
        sums[pixel] += load<V>(from + tap * lanes) * value;
      });
    }
  });
  const int64_t row = shape.padded_row(), step = shape.in;
  unrolled<side * side>([&](auto pixel) LOCKSTEP_INLINE {
    float* to = x + pixel / side * row + pixel % side * step;
    store(to, load<V>(to) + sums[pixel]);
  });
}

// [out][taps][in] to [in / lanes][out][taps][lanes]
void block_weights(const ConvShape& shape, const float* weight, int64_t lanes, float* to) {
  for (int64_t block = 0; block < shape.in / lanes; ++block)
    for (int64_t row = 0; row < shape.out * kTaps; ++row, to += lanes)
      std::copy_n(weight + row * shape.in + block * lanes, lanes, to);
}

template <class Padded>
void weight_gradient(const ConvShape& shape, const float* x, const PooledGradient& gradient, float* weight,
                     float* bias, SimdLevel level) {
  constexpr int64_t kChannelsAtOnce = 8;
  const int64_t size = kTaps * shape.in;
  std::fill_n(weight, shape.out * size, 0.0f);
  std::fill_n(bias, shape.out, 0.0f);
  at::parallel_for(0, shape.out, kChannelsAtOnce, [&](int64_t begin, int64_t end) {
    Padded padded(shape);
    Channel channel(shape);
    run_at(level, [&](auto lanes) LOCKSTEP_INLINE {
      for (int64_t image = 0; image < shape.images; ++image) {
        padded.take(x + image * shape.image_size());
        channel.turn_winners(gradient, image, begin, end);
        for (int64_t out = begin; out < end; ++out) {
          channel.read(gradient, image, out, level);
          bias[out] += channel.sum();
          padded.template add<lanes>(channel, weight + out * size);
        }
      }
    });
    Padded::finish(weight + begin * size, (end - begin) * size);
  });
}

}  // namespace

void sparse_weight_gradient(const ConvShape& shape, const float* x, const PooledGradient& gradient,
                            float* weight, float* bias, SimdLevel level, Products products) {
  const bool of_pairs = products == Products::bf16 && shape.in % kPairChannels == 0;
  const auto run = of_pairs ? weight_gradient<PaddedPairs> : weight_gradient<PaddedFloats>;
  run(shape, x, gradient, weight, bias, level);
}

void sparse_input_gradient(const ConvShape& shape, const PooledGradient& gradient, const float* weight,
                           float* x, SimdLevel level, Products products) {
  if (products == Products::bf16 && fits_pairs(shape))
    return sparse_input_gradient_of_pairs(shape, gradient, weight, x);
  const Scratch<float> weights(shape.out * kTaps * shape.in);
  run_at(level, [&](auto lanes) LOCKSTEP_INLINE { block_weights(shape, weight, lanes, weights.get()); });
  at::parallel_for(0, shape.images, 1, [&](int64_t begin, int64_t end) {
    const Scratch<float> padded(shape.padded_size());
    Windows windows(shape);
    run_at(level, [&](auto lanes) LOCKSTEP_INLINE {
      for (int64_t image = begin; image < end; ++image) {
        windows.read(gradient, image, kTaps * lanes, level);
        std::fill_n(padded.get(), shape.padded_size(), 0.0f);
        for (int64_t in = 0; in < shape.in; in += lanes)
          for (int64_t window = 0; window < shape.windows(); ++window)
            add_window<lanes>(shape, windows, window, weights.get() + shape.out * kTaps * in,
                              padded.get() + in + shape.corner(window));
        unpad(padded.get(), shape, x + image * shape.image_size());
      }
    });
  });
}

}  // namespace lockstep::kernels
