#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <limits>
#include <vector>

#include "fast/bf16.h"
#include "fast/conv.h"
#include "fast/table.h"
#include "kernels/levels.h"
#include "lockstep/base/format.h"

namespace lockstep::kernels {
namespace {

using at::MemoryFormat;

std::vector<ConvShape> shapes(int64_t in) {
  std::vector<ConvShape> all;
  for (const auto& [images, factor, height, width] : std::vector<std::array<int64_t, 4>>{
           {1, 1, 2, 2}, {3, 1, 2, 7}, {2, 3, 5, 4}, {5, 1, 14, 14}, {2, 2, 9, 11}})
    all.push_back({images, in == 1 ? 1 : in * factor, 32 * factor, height, width});
  if (in == 1) all.insert(all.end(), {{2, 1, 16, 7, 5}, {3, 1, 48, 4, 9}});
  return all;
}

struct Layer {
  at::Tensor x, weight, bias;

  explicit Layer(const ConvShape& shape, at::ScalarType type = at::kFloat)
      : x(at::randn({shape.images, shape.in, shape.height, shape.width}, at::kDouble)),
        weight(at::randn({shape.out, shape.in, 3, 3}, at::kDouble)),
        bias(at::randn({shape.out}, at::kDouble)) {
    x = x.contiguous(MemoryFormat::ChannelsLast).to(type);
    weight = weight.contiguous(MemoryFormat::ChannelsLast).to(type);
    bias = bias.to(type);
  }
  Layer(at::Tensor one, at::Tensor two, at::Tensor three)
      : x(std::move(one)), weight(std::move(two)), bias(std::move(three)) {}

  Layer copy(at::ScalarType type) const {
    const auto own = [&](const at::Tensor& t) { return t.detach().to(type, false, true).requires_grad_(); };
    return {own(x), own(weight), own(bias)};
  }
};

at::Tensor by_torch(const Layer& layer) {
  return at::max_pool2d(at::relu(at::conv2d(layer.x, layer.weight, layer.bias, 1, 1)), 2);
}

at::Tensor ours(const Layer& layer) {
  return conv_pool_relu(layer.x, layer.weight, layer.bias);
}

// Apart by a few roundings of the largest number; with a gradient, of what it is summed from.
void expect_close(const at::Tensor& one, const at::Tensor& exact) {
  ASSERT_TRUE(one.defined());
  ASSERT_EQ(one.sizes(), exact.sizes());
  const auto apart = (one.to(at::kDouble) - exact).abs().max().item<double>();
  EXPECT_LT(apart, 3e-6 * std::max(1.0, exact.abs().max().item<double>()));
}

const float* of(const at::Tensor& tensor) {
  return tensor.const_data_ptr<float>();
}
float* into(const at::Tensor& tensor) {
  return tensor.data_ptr<float>();
}

// What the loops make of it, at a level.
struct Results {
  at::Tensor output, winner, x, weight, bias;

  Results(const ConvShape& shape, const Layer& layer)
      : output(at::empty({shape.images, shape.out, shape.high(), shape.wide()}, at::kFloat,
                         MemoryFormat::ChannelsLast)),
        winner(at::empty_like(output, at::kByte)),
        x(at::empty_like(layer.x)),
        weight(at::empty_like(layer.weight)),
        bias(at::empty_like(layer.bias)) {}
};

// Of many channels.
Results forward(const ConvShape& shape, const Layer& layer, SimdLevel level,
                Products products = Products::floats) {
  Results out(shape, layer);
  winograd_forward(shape, of(layer.x), of(layer.weight), of(layer.bias), into(out.output),
                   out.winner.data_ptr<uint8_t>(), level, products);
  return out;
}

Results backward(const ConvShape& shape, const Layer& layer, const at::Tensor& gradient,
                 const at::Tensor& winner, SimdLevel level, Products products = Products::floats) {
  Results out(shape, layer);
  const auto own = gradient.contiguous();
  const PooledGradient pooled = {of(own), winner.const_data_ptr<uint8_t>()};
  sparse_weight_gradient(shape, of(layer.x), pooled, into(out.weight), into(out.bias), level, products);
  sparse_input_gradient(shape, pooled, of(layer.weight), into(out.x), level, products);
  return out;
}

Results run(const ConvShape& shape, const Layer& layer, const at::Tensor& gradient, SimdLevel level) {
  if (shape.in > 1) {
    const auto made = forward(shape, layer, level);
    auto all = backward(shape, layer, gradient, made.winner, level);
    all.output = made.output, all.winner = made.winner;
    return all;
  }
  Results out(shape, layer);
  auto* winner = out.winner.data_ptr<uint8_t>();
  first_conv_forward(shape, of(layer.x), of(layer.weight), of(layer.bias), into(out.output), winner, level);
  const auto own = gradient.contiguous(MemoryFormat::ChannelsLast);
  first_conv_backward(shape, of(layer.x), of(own), winner, into(out.weight), into(out.bias), level);
  return out;
}

void expect_libtorchs(int64_t in) {
  at::manual_seed(1);
  for (const auto& shape : shapes(in))
    for (const auto level : levels()) {
      SCOPED_TRACE(format("{} images, {} to {} channels, {} x {}, level {}", shape.images, shape.in,
                          shape.out, shape.height, shape.width, static_cast<int>(level)));
      const Layer layer(shape), exact = layer.copy(at::kDouble);
      const auto wanted = by_torch(exact);
      const auto gradient = at::randn(wanted.sizes()).mul_(at::randint(0, 2, wanted.sizes()));
      wanted.backward(gradient.to(at::kDouble));
      const auto result = run(shape, layer, gradient, level);
      expect_close(result.output, wanted);
      expect_close(result.weight, exact.weight.grad());
      expect_close(result.bias, exact.bias.grad());
      if (in > 1) expect_close(result.x, exact.x.grad());
    }
}

TEST(ConvPoolRelu, OfOneChannelIsLibtorchsAtEachLevel) {
  expect_libtorchs(1);
}

TEST(ConvPoolRelu, OfManyChannelsIsLibtorchsAtEachLevel) {
  expect_libtorchs(16);
}

TEST(ConvPoolRelu, IsPartOfAGraphAndItsGradientsLieAsTheirParameters) {
  at::manual_seed(2);
  for (const int64_t in : {1, 32})
    for (const auto format : {MemoryFormat::Contiguous, MemoryFormat::ChannelsLast}) {
      const Layer whole(ConvShape{4, in, 64, 10, 12});
      const Layer layer(whole.x.contiguous(format).requires_grad_(in > 1),
                        whole.weight.contiguous(format).requires_grad_(),
                        whole.bias.clone().requires_grad_());
      const auto exact = layer.copy(at::kDouble);
      const auto output = ours(layer), wanted = by_torch(exact);
      EXPECT_NE(output.grad_fn()->name().find("ConvPoolRelu"), std::string::npos);
      expect_close(output, wanted);
      const auto gradient = at::randn(wanted.sizes());
      output.backward(gradient);
      wanted.backward(gradient.to(at::kDouble));
      expect_close(layer.weight.grad(), exact.weight.grad());
      expect_close(layer.bias.grad(), exact.bias.grad());
      EXPECT_EQ(layer.weight.grad().strides(), layer.weight.strides());
      if (in > 1) expect_close(layer.x.grad(), exact.x.grad());
    }
}

// All of a window's sums are the same, to the bit, where the image is: the first has the gradient, as ATen's.
TEST(ConvPoolRelu, GivesTheFirstOfEqualSumsTheGradient) {
  at::manual_seed(3);
  for (const auto level : levels()) {
    const ConvShape shape = {2, 32, 32, 8, 8};
    Layer layer(shape);
    layer.x.fill_(0.25);
    const auto exact = layer.copy(at::kDouble);
    const auto wanted = by_torch(exact);
    wanted.backward(at::ones_like(wanted));
    const auto result = run(shape, layer, at::ones({2, 32, 4, 4}), level);
    const auto inside = [](const at::Tensor& t) { return t.slice(2, 1, 3).slice(3, 1, 3); };
    EXPECT_TRUE(inside(result.winner).remainder(4).eq(0).all().item<bool>());
    expect_close(result.x, exact.x.grad());
  }
}

TEST(ConvPoolRelu, HidesNothingThatIsNoNumber) {
  const float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const int64_t in : {1, 16})
    for (const float value : {inf, -inf, nan})
      for (const auto level : levels()) {
        const ConvShape shape = {1, in, 32, 6, 6};
        Layer layer(shape);
        layer.weight.abs_().add_(0.1);
        layer.x[0][0][2][2] = value;
        const auto output = run(shape, layer, at::zeros({1, 32, 3, 3}), level).output;
        const auto wanted = by_torch(layer);
        // where libtorch's is no finite number, neither is ours: of inf a sum of differences may be NaN
        EXPECT_FALSE((output.isfinite() & ~wanted.isfinite()).any().item<bool>());
        EXPECT_TRUE(output[0].select(1, 2).select(1, 2).isfinite().all().item<bool>());
      }
}

TEST(ConvPoolRelu, HasTheSameBitsAtAnyNumberOfThreads) {
  at::manual_seed(4);
  const int before = at::get_num_threads();
  for (const int64_t in : {1, 32}) {
    const ConvShape shape = {7, in, 64, 14, 14};
    const Layer layer(shape);
    const auto gradient = at::randn({7, 64, 7, 7});
    at::set_num_threads(1);
    const auto one = run(shape, layer, gradient, level());
    at::set_num_threads(2);
    const auto two = run(shape, layer, gradient, level());
    EXPECT_TRUE(one.output.equal(two.output));
    EXPECT_TRUE(one.weight.equal(two.weight));
    EXPECT_TRUE(one.bias.equal(two.bias));
    EXPECT_TRUE(in == 1 || one.x.equal(two.x));
  }
  at::set_num_threads(before);
}

TEST(ConvPoolRelu, LeavesWhatItDoesNotKnowToTorch) {
  at::manual_seed(7);
  const auto plain = [](const Layer& layer) {
    const auto output = ours(layer);
    EXPECT_TRUE(!output.grad_fn() || output.grad_fn()->name().find("ConvPoolRelu") == std::string::npos);
    EXPECT_TRUE(output.equal(by_torch(layer)) || output.numel() == 0);
    EXPECT_EQ(output.sizes(), by_torch(layer).sizes());
  };
  const Layer known(ConvShape{2, 32, 32, 6, 6});
  plain(Layer(ConvShape{2, 3, 32, 6, 6}).copy(at::kFloat));   // channels in
  plain(Layer(ConvShape{2, 32, 24, 6, 6}).copy(at::kFloat));  // and out
  plain(Layer(ConvShape{2, 1, 32, 6, 6}).copy(at::kFloat));   // an image that wants a gradient
  plain(known.copy(at::kDouble));
  plain({known.x, known.weight, {}});
  plain({known.x.narrow(0, 0, 0), known.weight, known.bias});
  EXPECT_THROW(ours({known.x, known.weight.narrow(1, 0, 16), known.bias}), c10::Error);
  EXPECT_THROW(ours({known.x.narrow(2, 0, 1), known.weight, known.bias}), c10::Error);
}

class Bf16Products : public testing::Test {
 protected:
  void SetUp() override {
    if (!multiplies_bf16())
      GTEST_SKIP() << "this processor, or what libtorch takes of it, has no AVX512_BF16 and VBMI2";
  }
};

at::Tensor rounded(const at::Tensor& x) {
  return x.to(at::kBFloat16).to(at::kFloat);
}

TEST_F(Bf16Products, RoundAsLibtorchDoes) {
  at::manual_seed(8);
  const auto x = at::randn({1037});
  x[3] = std::numeric_limits<float>::quiet_NaN();
  x[4] = std::numeric_limits<float>::infinity();
  x[5] = 1.00390625f;  // between two: to the even one
  x[6] = 1.01171875f;
  auto own = at::full({1040}, 7, at::kBFloat16);
  round_to_bf16(x.const_data_ptr<float>(), x.numel(), static_cast<uint16_t*>(own.data_ptr()));
  EXPECT_TRUE(own.narrow(0, 0, 1037).to(at::kFloat).allclose(rounded(x), 0, 0, /*equal_nan=*/true));
  EXPECT_TRUE(own.narrow(0, 1037, 3).eq(7).all().item<bool>());
}

TEST_F(Bf16Products, OfTilesAreNearTheFloats) {
  at::manual_seed(9);
  for (const auto& shape : shapes(32)) {
    const Layer layer(shape);
    const auto wanted = by_torch(layer.copy(at::kDouble)).detach();
    const auto output = forward(shape, layer, level(), Products::bf16).output;
    const auto apart = (output - wanted).abs().max().item<double>();
    EXPECT_LT(apart, 0.01 * wanted.abs().max().item<double>());
    EXPECT_GT(apart, 1e-4) << "of floats";
  }
}

// Products of rounded numbers are exact in floats: what is left are the roundings of sums.
TEST_F(Bf16Products, OfAGradientAreThoseOfRoundedNumbers) {
  at::manual_seed(10);
  for (const auto& shape : shapes(32)) {
    const Layer layer(shape);
    const std::array<int64_t, 4> sizes = {shape.images, shape.out, shape.high(), shape.wide()};
    const auto gradient = at::randn(sizes).mul_(at::randint(0, 3, sizes).sign());
    const auto winner = forward(shape, layer, level()).winner;
    const auto made = backward(shape, layer, gradient, winner, level(), Products::bf16);
    const auto of_floats = backward(shape, layer, gradient, winner, level());
    const auto of_rounded = backward(shape, {rounded(layer.x), rounded(layer.weight), layer.bias},
                                     rounded(gradient), winner, level());
    expect_close(made.weight, of_rounded.weight.to(at::kDouble));
    expect_close(made.x, of_rounded.x.to(at::kDouble));
    EXPECT_TRUE(made.bias.equal(of_floats.bias));
    EXPECT_GT((made.x - of_floats.x).abs().max().item<double>(), 1e-4) << "of floats";
  }
}

TEST_F(Bf16Products, AreMadeWithinAnAutocastAndInItsBackward) {
  at::manual_seed(11);
  const ConvShape shape = {4, 32, 64, 6, 6};
  const Layer layer = Layer(shape).copy(at::kFloat);
  at::autocast::set_autocast_enabled(at::kCPU, true);
  const auto output = ours(layer);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  const auto gradient = at::randn(output.sizes());
  output.backward(gradient);

  const auto made = forward(shape, layer, level(), Products::bf16);
  for (const auto products : {Products::floats, Products::bf16}) {
    const bool same = products == Products::bf16;
    EXPECT_EQ(output.equal(forward(shape, layer, level(), products).output), same);
    const auto back = backward(shape, layer, gradient, made.winner, level(), products);
    EXPECT_EQ(layer.weight.grad().equal(back.weight), same);
    EXPECT_EQ(layer.x.grad().equal(back.x), same);
  }
}

}  // namespace
}  // namespace lockstep::kernels
