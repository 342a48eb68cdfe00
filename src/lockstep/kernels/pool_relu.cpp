#include "lockstep/kernels/pool_relu.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>

#include "lockstep/kernels/pool_relu_loops.h"

namespace lockstep::kernels {
namespace {

// The layout of a row's windows: in channels_last an element's channels are contiguous, and each has its own
// window; otherwise the elements of an image's row are contiguous.
struct Window {
  bool channels_last;
  int64_t right;  // from an element to the one on its right
  int64_t below;  // and to the one below

  template <int lanes, class T>
  LOCKSTEP_INLINE Four<lanes> read(const T* row, int64_t i) const {
    if (channels_last) {
      return {load_floats<lanes>(row + i), load_floats<lanes>(row + i + right),
              load_floats<lanes>(row + i + below), load_floats<lanes>(row + i + below + right)};
    }
    const auto top = load_floats<lanes>(row + 2 * i), top_on = load_floats<lanes>(row + 2 * i + lanes);
    const auto low = load_floats<lanes>(row + 2 * i + below),
               low_on = load_floats<lanes>(row + 2 * i + lanes + below);
    return {every_second<lanes, 0>(top, top_on), every_second<lanes, 1>(top, top_on),
            every_second<lanes, 0>(low, low_on), every_second<lanes, 1>(low, low_on)};
  }

  template <int lanes, class T>
  LOCKSTEP_INLINE void write(T* row, int64_t i, const Four<lanes>& four) const {
    if (channels_last) {
      store_floats<lanes>(row + i, four[0]);
      store_floats<lanes>(row + i + right, four[1]);
      store_floats<lanes>(row + i + below, four[2]);
      store_floats<lanes>(row + i + below + right, four[3]);
      return;
    }
    store_floats<lanes>(row + 2 * i, zipped<lanes, 0>(four[0], four[1]));
    store_floats<lanes>(row + 2 * i + lanes, zipped<lanes, 1>(four[0], four[1]));
    store_floats<lanes>(row + 2 * i + below, zipped<lanes, 0>(four[2], four[3]));
    store_floats<lanes>(row + 2 * i + lanes + below, zipped<lanes, 1>(four[2], four[3]));
  }
};

template <int lanes>
LOCKSTEP_INLINE inline Floats<lanes> relu(Floats<lanes> x) {
  const Floats<lanes> zero = {};
  return x < zero ? zero : x;
}

// As in ATen: the first of equal ones wins, and the last NaN.
template <int lanes, class T>
LOCKSTEP_INLINE inline void pool(const Four<lanes>& four, T* out, uint8_t* winner) {
  auto best = relu<lanes>(four[0]);
  Ints<lanes> at = {};
  for (int k = 1; k < 4; ++k) {
    const auto x = relu<lanes>(four[k]);
    const auto wins = (x > best) | is_no_number(x);
    best = wins ? x : best;
    at = wins ? at * 0 + k : at;
  }
  store_floats<lanes>(out, best);
  store_bytes<lanes>(winner, best <= Floats<lanes>{} ? at * 0 + kNoWinner : at);
}

// ATen adds to zeros: a gradient of -0 arrives as 0.
template <int lanes, class T>
LOCKSTEP_INLINE inline Four<lanes> spread(const T* gradient, const uint8_t* winner) {
  const auto own = load_floats<lanes>(gradient) + 0.0f;
  const auto who = load_bytes<lanes>(winner);
  Four<lanes> four;
  for (int k = 0; k < 4; ++k) four[k] = who == k ? own : Floats<lanes>{};
  return four;
}

// The rows of windows of a batch, each of them one loop or more.
class Rows {
 public:
  explicit Rows(const PooledImages& images)
      : channels_last_(images.channels_last),
        planes_(images.sizes[0] * (channels_last_ ? 1 : images.sizes[1])),
        depth_(channels_last_ ? images.sizes[1] : 1),
        height_(images.sizes[2]),
        width_(images.sizes[3]) {}

  int64_t count() const { return planes_ * (height_ / 2); }

  // work(offset into x, offset into the output, count, window) for the windows of a row
  template <class Work>
  LOCKSTEP_INLINE void visit(int64_t row, const Work& work) const {
    const int64_t plane = row / (height_ / 2), y = row % (height_ / 2), wide = width_ / 2;
    const int64_t in = (plane * height_ + 2 * y) * width_ * depth_, out = row * wide * depth_;
    if (!channels_last_) return work(in, out, wide, Window{false, 1, width_});
    for (int64_t x = 0; x < wide; ++x)
      work(in + 2 * x * depth_, out + x * depth_, depth_, Window{true, depth_, width_ * depth_});
  }

 private:
  bool channels_last_;
  int64_t planes_, depth_, height_, width_;
};

at::MemoryFormat format_of(const PooledImages& images) {
  return images.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
}

constexpr int64_t kRowsAtOnce = 64;

// All rows, by all threads, compiled for that level.
template <class Work>
void for_rows(const PooledImages& images, SimdLevel level, const Work& work) {
  const Rows rows(images);
  at::parallel_for(0, rows.count(), kRowsAtOnce, [&](int64_t begin, int64_t end) {
    run_at(std::min(level, SimdLevel::avx2), [&](auto lanes) LOCKSTEP_INLINE {  // it compares
      for (int64_t row = begin; row < end; ++row) {
        rows.visit(row, [&](int64_t x, int64_t y, int64_t count, Window window) LOCKSTEP_INLINE {
          for_chunks(lanes, count,
                     [&](auto chunk, int64_t i) LOCKSTEP_INLINE { work(chunk, x, y + i, i, window); });
        });
      }
    });
  });
}

template <class T>
void pool_all(const at::Tensor& x, const PooledImages& images, SimdLevel level, PoolOutput& pooled) {
  const T* in = static_cast<const T*>(x.const_data_ptr());
  T* out = static_cast<T*>(pooled.output.mutable_data_ptr());
  uint8_t* winner = pooled.winner.mutable_data_ptr<uint8_t>();
  for_rows(images, level, [=](auto chunk, int64_t row, int64_t to, int64_t i, Window window) LOCKSTEP_INLINE {
    constexpr int lanes = chunk;
    pool<lanes>(window.read<lanes>(in + row, i), out + to, winner + to);
  });
}

template <class T>
void spread_all(const at::Tensor& gradient, const at::Tensor& winner, const PooledImages& images,
                SimdLevel level, at::Tensor& out) {
  const T* in = static_cast<const T*>(gradient.const_data_ptr());
  T* to = static_cast<T*>(out.mutable_data_ptr());
  const uint8_t* who = winner.const_data_ptr<uint8_t>();
  for_rows(images, level,
           [=](auto chunk, int64_t row, int64_t from, int64_t i, Window window) LOCKSTEP_INLINE {
             constexpr int lanes = chunk;
             window.write<lanes>(to + row, i, spread<lanes>(in + from, who + from));
           });
}

}  // namespace

PooledImages images_of(const at::Tensor& x) {
  // with one channel it is both, and the rows of planes are longer
  const bool channels_last = !x.is_contiguous() && x.is_contiguous(at::MemoryFormat::ChannelsLast);
  return {{x.size(0), x.size(1), x.size(2), x.size(3)}, channels_last};
}

PoolOutput pool_relu_forward(const at::Tensor& x, const PooledImages& images, SimdLevel level) {
  const std::array<int64_t, 4> halves = {x.size(0), x.size(1), x.size(2) / 2, x.size(3) / 2};
  PoolOutput pooled = {at::empty(halves, x.options(), format_of(images)),
                       at::empty(halves, x.options().dtype(at::kByte), format_of(images))};
  if (x.scalar_type() == at::kFloat)
    pool_all<float>(x, images, level, pooled);
  else
    pool_all<uint16_t>(x, images, level, pooled);
  return pooled;
}

at::Tensor pool_relu_backward(const at::Tensor& gradient, const at::Tensor& winner,
                              const PooledImages& images, SimdLevel level) {
  const auto format = format_of(images);
  auto out = at::empty(images.sizes, gradient.options(), format);
  if (images.sizes[2] % 2 != 0 || images.sizes[3] % 2 != 0) out.zero_();  // what no window reaches
  const auto in_order = gradient.contiguous(format);
  if (gradient.scalar_type() == at::kFloat)
    spread_all<float>(in_order, winner, images, level, out);
  else
    spread_all<uint16_t>(in_order, winner, images, level, out);
  return out;
}

at::Tensor spread_with_graph(const at::Tensor& gradient, const at::Tensor& winner,
                             const PooledImages& images) {
  const auto& sizes = images.sizes;
  const auto all = at::arange(kNoWinner, winner.options());
  // added to zeros, as ATen does: -0 becomes 0
  const auto four =
      at::where(winner.unsqueeze(-1).eq(all), gradient.unsqueeze(-1) + 0, at::zeros({}, gradient.options()));
  const int64_t high = sizes[2] / 2, wide = sizes[3] / 2;
  const auto planes = four.view({sizes[0], sizes[1], high, wide, 2, 2}).transpose(3, 4);
  const auto spread = at::constant_pad_nd(planes.reshape({sizes[0], sizes[1], 2 * high, 2 * wide}),
                                          {0, sizes[3] % 2, 0, sizes[2] % 2});
  return spread.contiguous(format_of(images));
}

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// ATen's relu keeps -0 on x86-64, which the loops do too; on aarch64 it makes it 0.
#if defined(__x86_64__)
constexpr bool kAtensBits = true;
#else
constexpr bool kAtensBits = false;
#endif

bool is_known(const at::Tensor& x) {
  const bool in_order = x.is_contiguous() || x.is_contiguous(at::MemoryFormat::ChannelsLast);
  return kAtensBits && x.device().is_cpu() && x.layout() == at::kStrided && x.dim() == 4 && x.numel() > 0 &&
         in_order && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16) && x.size(2) > 1 &&
         x.size(3) > 1 && !x._fw_grad(0).defined();
}

struct PoolRelu : torch::autograd::Function<PoolRelu> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x) {
    const auto images = images_of(x);
    auto pooled = pool_relu_forward(x, images, level());
    context->save_for_backward({pooled.winner});
    context->saved_data["sizes"] = x.sizes();
    context->saved_data["channels_last"] = images.channels_last;
    return pooled.output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto winner = context->get_saved_variables()[0];
    PooledImages images = {{}, context->saved_data["channels_last"].toBool()};
    std::ranges::copy(context->saved_data["sizes"].toIntVector(), images.sizes.begin());
    if (at::GradMode::is_enabled()) return {spread_with_graph(gradients[0], winner, images)};
    return {pool_relu_backward(gradients[0], winner, images, level())};
  }
};

}  // namespace
}  // namespace lockstep::kernels

namespace lockstep {

at::Tensor pool_relu(const at::Tensor& x) {
  return kernels::is_known(x) ? kernels::PoolRelu::apply(x) : at::max_pool2d(at::relu(x), 2);
}

}  // namespace lockstep
