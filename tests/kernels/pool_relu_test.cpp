#include "lockstep/kernels/pool_relu.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <vector>

#include "kernels/levels.h"
#include "lockstep/base/format.h"
#include "lockstep/kernels/pool_relu_loops.h"

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

}  // namespace
}  // namespace lockstep::kernels
