#include "lockstep/kernels/pool_relu.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <array>
#include <limits>
#include <vector>

#include "kernels/levels.h"
#include "lockstep/base/format.h"
#include "lockstep/kernels/flattened.h"
#include "lockstep/kernels/pool_relu_loops.h"
#include "lockstep/kernels/sgd.h"

namespace lockstep::kernels {
namespace {

using at::MemoryFormat;

struct PoolCase {
  std::vector<int64_t> sizes;
  MemoryFormat format;
  at::ScalarType type;
};

std::vector<PoolCase> pool_cases() {
  std::vector<PoolCase> all;
  for (const auto& sizes : std::vector<std::vector<int64_t>>{{1, 1, 2, 2},
                                                             {2, 3, 2, 2},
                                                             {3, 5, 7, 9},
                                                             {1, 37, 3, 2},
                                                             {2, 32, 28, 28},
                                                             {2, 64, 14, 14},
                                                             {1, 7, 5, 70}})
    for (const auto format : {MemoryFormat::Contiguous, MemoryFormat::ChannelsLast})
      for (const auto type : {at::kFloat, at::kBFloat16}) all.push_back({sizes, format, type});
  return all;
}

// few different values, so that windows have ties, and all that are special
at::Tensor values(const PoolCase& one) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  const auto kinds =
      at::tensor({-2.0f, -1.0f, -0.0f, 0.0f, 1e-40f, -1e-40f, 1.0f, 1.0f, 2.0f, 3.5f, inf, -inf, nan});
  const auto which = at::randint(kinds.numel(), one.sizes, at::kLong);
  return kinds.take(which).to(one.type).contiguous(one.format);
}

// What is no number has many bits, and ATen's bfloat16 ones hang on where in a vector they stand.
at::Tensor bits(const at::Tensor& x) {
  const auto numbers = at::where(x.isnan(), at::full({}, 7, x.options()), x.detach()).contiguous();
  return numbers.view(x.scalar_type() == at::kFloat ? at::kInt : at::kShort);
}

bool same_bits(const at::Tensor& one, const at::Tensor& other) {
  return one.scalar_type() == other.scalar_type() && one.isnan().equal(other.isnan()) &&
         bits(one).equal(bits(other));
}

at::Tensor pooled_by_torch(const at::Tensor& x) {
  return at::max_pool2d(at::relu(x), 2);
}

TEST(PoolRelu, HasTheBitsOfTheTwoForwardAndBackwardAtEachLevel) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "elsewhere libtorch's own operations are taken";
#endif
  at::manual_seed(1);
  for (const auto& one : pool_cases())
    for (const auto level : levels()) {
      SCOPED_TRACE(format("{} channels_last {} type {} level {}", at::IntArrayRef(one.sizes)[3],
                          one.format == MemoryFormat::ChannelsLast, toString(one.type),
                          static_cast<int>(level)));
      const auto x = values(one).requires_grad_();
      const auto wanted = pooled_by_torch(x);
      const auto images = images_of(x);
      const auto pooled = pool_relu_forward(x.detach(), images, level);
      EXPECT_TRUE(same_bits(pooled.output, wanted));
      const auto gradient = at::randn(wanted.sizes()).to(one.type).mul_(at::randint(-1, 2, wanted.sizes()));
      wanted.backward(gradient);
      const auto ours = pool_relu_backward(gradient, pooled.winner, images, level);
      EXPECT_TRUE(same_bits(ours, x.grad()));
      EXPECT_EQ(ours.strides(), x.strides());
    }
}

TEST(PoolRelu, IsPartOfAGraph) {
  for (const auto& one : pool_cases()) {
    const auto x = values(one).requires_grad_(), y = x.detach().clone().requires_grad_();
    const auto ours = pool_relu(x), wanted = pooled_by_torch(y);
    EXPECT_TRUE(ours.is_contiguous(one.format));
    (ours * 3).sum().backward();
    (wanted * 3).sum().backward();
    EXPECT_TRUE(same_bits(ours, wanted));
    EXPECT_TRUE(same_bits(x.grad(), y.grad()));
  }
}

TEST(PoolRelu, LeavesWhatItDoesNotKnowToTorch) {
  at::manual_seed(3);
  const auto x = at::randn({4, 6, 8, 10});
  for (const auto& other : {x.to(at::kDouble), x.transpose(2, 3), x.slice(2, 1), x[0], x.narrow(0, 0, 0)}) {
    if (other.numel() > 0) {
      EXPECT_TRUE(pool_relu(other).equal(pooled_by_torch(other)));
    } else {
      EXPECT_EQ(pool_relu(other).sizes(), pooled_by_torch(other).sizes());
    }
  }
  EXPECT_THROW(pool_relu(x.narrow(2, 0, 1)), c10::Error);
}

class InAutocast {
 public:
  InAutocast() { at::autocast::set_autocast_enabled(at::kCPU, true); }
  ~InAutocast() { at::autocast::set_autocast_enabled(at::kCPU, false); }
};

at::Tensor images(at::IntArrayRef sizes) {
  return at::randn(sizes).contiguous(MemoryFormat::ChannelsLast);
}

TEST(Flattened, HasLibtorchsBitsAtEachLevel) {
  at::manual_seed(1);
  for (const auto& [n, channels, height, width] : std::vector<std::array<int64_t, 4>>{{1, 1, 1, 1},
                                                                                      {3, 2, 1, 3},
                                                                                      {2, 64, 7, 7},
                                                                                      {1, 7, 5, 5},
                                                                                      {2, 17, 3, 11},
                                                                                      {1, 40, 2, 9},
                                                                                      {5, 16, 4, 4}})
    for (const auto level : levels()) {
      SCOPED_TRACE(
          format("{} x {} x {} x {}, level {}", n, channels, height, width, static_cast<int>(level)));
      auto x = images({n, channels, height, width});
      x.select(1, channels / 2).select(1, height / 2).select(1, width / 2) =
          std::numeric_limits<float>::quiet_NaN();
      x.select(1, 0).select(1, 0).select(1, 0) = 1.00390625F;  // between two: to the even one
      auto rows = at::empty({n, channels * height * width}, at::kBFloat16);
      flatten_images(x.const_data_ptr<float>(), n, height * width, channels,
                     static_cast<uint16_t*>(rows.data_ptr()), level);
      const auto wanted = x.flatten(1).to(at::kBFloat16);
      EXPECT_TRUE(rows.allclose(wanted, 0, 0, /*equal_nan=*/true));
    }
}

TEST(Flattened, GivesALinearLayerAndItsInputWhatAutocastGives) {
  at::manual_seed(2);
  const auto x = images({4, 32, 3, 5}).requires_grad_(), weight = at::randn({8, 480}),
             gradient = at::randn({4, 8}, at::kBFloat16);
  const auto of = [&](bool own) {
    const auto output = [&] {
      const InAutocast here;
      return at::linear(own ? flattened(x) : x.flatten(1), weight);
    }();
    return std::pair{output, torch::autograd::grad({output}, {x}, {gradient})[0]};
  };
  const auto [output, back] = of(true);
  const auto [wanted, wanted_back] = of(false);
  EXPECT_TRUE(output.equal(wanted));
  EXPECT_TRUE(back.equal(wanted_back));
  EXPECT_EQ(back.scalar_type(), at::kFloat);
}

TEST(Flattened, LeavesWhatItDoesNotKnowToTorch) {
  at::manual_seed(4);
  const auto x = images({2, 8, 3, 3});
  EXPECT_TRUE(flattened(x).equal(x.flatten(1))) << "no autocast";
  const InAutocast here;
  EXPECT_EQ(flattened(x).scalar_type(), at::kBFloat16);
  for (const auto& other : {x.contiguous(), x.to(at::kDouble), x.to(at::kBFloat16), x.narrow(0, 0, 0),
                            x.select(0, 0), x.permute({0, 2, 1, 3})}) {
    const auto rows = flattened(other);
    EXPECT_EQ(rows.scalar_type(), other.scalar_type());
    EXPECT_TRUE(rows.equal(other.flatten(1)));
  }
}

// As torch.optim.SGD: one operation after the other.
void by_operations(const at::Tensor& p, const at::Tensor& g, const at::Tensor& buffer, double lr,
                   double momentum, double dampening, double decay, bool nesterov) {
  auto way = decay != 0 ? at::add(g, p, decay) : g;
  if (momentum != 0) {
    buffer.mul_(momentum).add_(way, 1 - dampening);
    way = nesterov ? at::add(way, buffer, momentum) : buffer;
  }
  p.add_(way, -lr);
}

TEST(Sgd, HasTheBitsOfTheOperations) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "elsewhere libtorch's own operations are taken";
#endif
  at::manual_seed(1);
  constexpr double kLr = 0.0137, kMomentum = 0.9;
  for (const int64_t count : {1, 2, 7, 8, 33, 64, 1037, 70001})
    for (const double dampening : {0.0, 0.3})
      for (const double decay : {0.0, 0.013})
        for (const int kind : {0, 1, 2}) {  // plain, momentum, Nesterov's
          SCOPED_TRACE(format("{} numbers, dampening {}, decay {}, kind {}", count, dampening, decay, kind));
          const double momentum = kind == 0 ? 0 : kMomentum;
          const auto p = at::randn({count}), wanted = p.clone();
          const auto buffer = at::randn({count}), wanted_buffer = buffer.clone();
          for (int step = 0; step < 3; ++step) {
            const auto g = at::randn({count});
            by_operations(wanted, g, wanted_buffer, kLr, momentum, dampening, decay, kind == 2);
            take_sgd_step({.lr = static_cast<float>(kLr),
                           .momentum = static_cast<float>(momentum),
                           .dampening_left = static_cast<float>(1 - dampening),
                           .weight_decay = static_cast<float>(decay),
                           .nesterov = kind == 2},
                          p.mutable_data_ptr<float>(), g.const_data_ptr<float>(),
                          kind == 0 ? nullptr : buffer.mutable_data_ptr<float>(), count, level());
          }
          EXPECT_TRUE(p.equal(wanted));
          EXPECT_TRUE(buffer.equal(wanted_buffer));
        }
}

}  // namespace
}  // namespace lockstep::kernels
