#include "lockstep/kernels/linear_relu.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <vector>

namespace lockstep {
namespace {

struct LinearLayer {
  at::Tensor x, weight, bias;
};

struct LinearCase {
  int64_t rows, in, out;
  bool x_learns;
};

const std::vector<LinearCase> kCases = {{32, 8, 64, false}, {32, 64, 32, true}, {20, 32, 2, true},
                                        {1, 7, 5, true},    {3, 1, 4, true},    {5, 6, 1, true},
                                        {1, 1, 1, true},    {0, 4, 3, true},    {65, 33, 129, true}};

LinearLayer layer_of(const LinearCase& one) {
  LinearLayer layer = {at::randn({one.rows, one.in}), at::randn({one.out, one.in}), at::randn({one.out})};
  layer.x.set_requires_grad(one.x_learns);
  layer.weight.requires_grad_();
  layer.bias.requires_grad_();
  return layer;
}

LinearLayer copy_of(const LinearLayer& layer) {
  const auto copied = [](const at::Tensor& x) {
    return x.detach().clone().set_requires_grad(x.requires_grad());
  };
  return {copied(layer.x), copied(layer.weight), copied(layer.bias)};
}

at::Tensor linear_by_torch(const LinearLayer& layer, bool relu) {
  const auto sums = at::linear(layer.x, layer.weight, layer.bias);
  return relu ? at::relu(sums) : sums;
}

at::Tensor by_us(const LinearLayer& layer, bool relu) {
  return relu ? linear_relu(layer.x, layer.weight, layer.bias)
              : linear_alone(layer.x, layer.weight, layer.bias);
}

void expect_same_bits(const at::Tensor& one, const at::Tensor& other) {
  ASSERT_EQ(one.defined(), other.defined());
  if (!one.defined()) return;
  EXPECT_EQ(one.strides(), other.strides());
  EXPECT_TRUE(one.detach().contiguous().view(at::kInt).equal(other.detach().contiguous().view(at::kInt)));
}

void expect_same_gradients(const LinearLayer& one, const LinearLayer& other) {
  expect_same_bits(one.x.grad(), other.x.grad());
  expect_same_bits(one.weight.grad(), other.weight.grad());
  expect_same_bits(one.bias.grad(), other.bias.grad());
}

TEST(LinearRelu, HasTheBitsOfTorchsForwardAndBackward) {
  at::manual_seed(1);
  for (const auto& one : kCases)
    for (const bool relu : {false, true}) {
      SCOPED_TRACE(testing::Message() << one.rows << " " << one.in << " " << one.out << " relu " << relu);
      const auto theirs = layer_of(one), ours = copy_of(theirs);
      const auto wanted = linear_by_torch(theirs, relu), got = by_us(ours, relu);
      expect_same_bits(got, wanted);
      const auto gradient = at::randn(wanted.sizes());
      wanted.backward(gradient);
      got.backward(gradient);
      expect_same_gradients(ours, theirs);
    }
}

TEST(LinearRelu, IsOneNode) {
  const auto layer = layer_of(kCases[1]);
  const auto node = by_us(layer, true).grad_fn();
  ASSERT_EQ(node->num_outputs(), 3);
  EXPECT_EQ(node->next_edge(0).function, torch::autograd::impl::gradient_edge(layer.bias).function);
  EXPECT_EQ(node->next_edge(1).function, torch::autograd::impl::gradient_edge(layer.weight).function);
}

// DDP lays gradients into its buckets as they come.
TEST(LinearRelu, GivesItsGradientsInTorchsOrder) {
  const auto order = [](bool one_node) {
    const auto first = layer_of({4, 3, 5, false});
    auto second = layer_of({4, 5, 2, true});
    std::vector<int> seen;
    const auto watch = [&](const at::Tensor& parameter, int number) {
      torch::autograd::impl::grad_accumulator(parameter);
      parameter.register_hook([&seen, number](const at::Tensor& gradient) {
        seen.push_back(number);
        return gradient;
      });
    };
    watch(first.weight, 1), watch(first.bias, 2), watch(second.weight, 3), watch(second.bias, 4);
    second.x = one_node ? by_us(first, true) : linear_by_torch(first, true);
    (one_node ? by_us(second, false) : linear_by_torch(second, false)).sum().backward();
    return seen;
  };
  EXPECT_EQ(order(true), order(false));
  EXPECT_EQ(order(true).size(), 4U);
}

TEST(LinearRelu, RefusesWhatWasWrittenOverAndASecondBackward) {
  const auto layer = layer_of(kCases[1]);
  const auto output = by_us(layer, true).sum();
  {
    const at::NoGradGuard no_grad;
    at::Tensor(layer.weight).add_(1);
  }
  EXPECT_THROW(output.backward(), c10::Error);
  const auto another = by_us(layer, true).sum();
  another.backward();
  EXPECT_THROW(another.backward(), c10::Error);
}

TEST(LinearRelu, LeavesWhatItDoesNotKnowToTorch) {
  at::manual_seed(3);
  const auto weight = at::randn({4, 6}).requires_grad_(), bias = at::randn({4}).requires_grad_();
  const auto deep = at::randn({2, 3, 6});
  EXPECT_TRUE(linear_relu(deep, weight, bias).equal(at::relu(at::linear(deep, weight, bias))));
  EXPECT_TRUE(linear_alone(deep[0], weight, {}).equal(at::linear(deep[0], weight)));
  const auto turned = at::randn({6, 4}).t();
  EXPECT_TRUE(linear_relu(deep[0], turned, bias).equal(at::relu(at::linear(deep[0], turned, bias))));
  EXPECT_EQ(linear_relu(deep[0].to(at::kDouble), weight.to(at::kDouble), bias.to(at::kDouble)).dtype(),
            at::kDouble);
  EXPECT_THROW(linear_relu(at::randn({2, 5}), weight, bias), c10::Error);
}

}  // namespace
}  // namespace lockstep
