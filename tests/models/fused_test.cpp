// What a Sequential computes with its neighbours joined is what it computes alone, bit for bit.
#include "lockstep/models/fused.h"

#include <gtest/gtest.h>
#include <torch/torch.h>

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "bits.h"

namespace lockstep {
namespace {

using torch::nn::Sequential;
using Forward = std::function<at::Tensor(Sequential&, const at::Tensor&)>;

// The result, the gradients of the input and of all parameters, then what the layers keep (averages).
std::vector<std::string> bits_of(Sequential& layers, const at::Tensor& input, const Forward& forward,
                                 bool with_graph) {
  std::vector<at::Tensor> before;
  for (const auto& buffer : layers->buffers()) before.push_back(buffer.clone());
  auto x = input.detach().clone().requires_grad_();
  torch::manual_seed(11);  // dropout
  // an in-place layer must not change a leaf
  auto out = forward(layers, x.mul(1));
  std::vector<std::string> all = {test::bits(out)};
  std::vector<at::Tensor> wanted = {x};
  for (const auto& parameter : layers->parameters())
    if (parameter.requires_grad()) wanted.push_back(parameter);
  const auto loss = out.to(at::kFloat).mul(out.detach() + 0.5).sum();
  for (const auto& gradient : torch::autograd::grad({loss}, wanted, {}, true, with_graph, true))
    all.push_back(gradient.defined() ? test::bits(gradient) : "");
  const auto buffers = layers->buffers();
  for (size_t i = 0; i < buffers.size(); ++i) {
    all.push_back(test::bits(buffers[i]));
    buffers[i].copy_(before[i]);
  }
  return all;
}

// Which of them differ: bytes are nothing to read.
std::string difference(const std::vector<std::string>& ours, const std::vector<std::string>& theirs) {
  if (ours.size() != theirs.size()) return "numbers of tensors";
  std::string which;
  for (size_t i = 0; i < ours.size(); ++i)
    if (ours[i] != theirs[i])
      which += (i == 0 ? "result" : i == 1 ? "input" : "tensor " + std::to_string(i - 2)) + " ";
  return which;
}

int nodes_of(const at::Tensor& out) {
  std::vector<torch::autograd::Node*> open = {out.grad_fn().get()};
  int count = 0;
  for (; !open.empty(); ++count) {
    auto* node = open.back();
    open.pop_back();
    for (const auto& edge : node->next_edges())
      if (edge.function) open.push_back(edge.function.get());
  }
  return count;
}

at::Tensor alone(Sequential& layers, const at::Tensor& x) {
  return layers->forward(x);
}

void expect_same(Sequential layers, const at::Tensor& input, bool fewer_nodes = true) {
  for (const bool with_graph : {false, true})
    EXPECT_EQ(difference(bits_of(layers, input, fused_forward, with_graph),
                         bits_of(layers, input, alone, with_graph)),
              "")
        << with_graph;
  const auto x = input.detach().clone().requires_grad_().mul(1);
  const int ours = nodes_of(fused_forward(layers, x.clone())), theirs = nodes_of(alone(layers, x.clone()));
  EXPECT_EQ(ours < theirs, fewer_nodes) << ours << " " << theirs;
}

Sequential cnn(bool in_place) {
  namespace nn = torch::nn;
  return Sequential(nn::Conv2d(nn::Conv2dOptions(3, 6, 3).padding(1)), nn::ReLU(nn::ReLUOptions(in_place)),
                    nn::MaxPool2d(2), nn::Conv2d(6, 5, 3), nn::BatchNorm2d(5),
                    nn::ReLU(nn::ReLUOptions(in_place)), nn::MaxPool2d(nn::MaxPool2dOptions(2).stride(2)),
                    nn::Flatten(), nn::Linear(5 * 3 * 3, 7), nn::ReLU(nn::ReLUOptions(in_place)),
                    nn::Dropout(0.3), nn::Linear(7, 4));
}

TEST(FusedForward, OfAConvolutionalNetHasItsBits) {
  torch::manual_seed(5);
  for (const bool in_place : {false, true}) expect_same(cnn(in_place), torch::randn({4, 3, 16, 16}));
}

TEST(FusedForward, HasTheBitsOfOtherLayoutsSizesAndTypes) {
  torch::manual_seed(9);
  namespace nn = torch::nn;
  const auto images = torch::randn({4, 3, 16, 16});
  expect_same(cnn(false), images.contiguous(at::MemoryFormat::ChannelsLast));
  Sequential in_bf16 = cnn(true), odd(nn::Conv2d(3, 4, 3), nn::ReLU(), nn::MaxPool2d(2));
  in_bf16->to(at::kBFloat16);
  expect_same(in_bf16, images.to(at::kBFloat16));
  expect_same(odd, torch::randn({2, 3, 9, 11}));
  Sequential dense(nn::Linear(6, 5), nn::ReLU(), nn::Linear(5, 3));
  for (const auto& shape : std::vector<std::vector<int64_t>>{{6}, {2, 4, 6}}) {
    const auto input = torch::randn(shape);
    EXPECT_EQ(difference(bits_of(dense, input, fused_forward, false), bits_of(dense, input, alone, false)),
              "");
  }
  dense->parameters()[0].set_requires_grad(false);
  expect_same(dense, torch::randn({3, 6}));
  const at::NoGradGuard no_grad;
  auto layers = cnn(true);
  layers->eval();
  EXPECT_TRUE(torch::equal(fused_forward(layers, images), layers->forward(images)));
}

TEST(FusedForward, OfDenseLayersHasTheirBits) {
  torch::manual_seed(6);
  namespace nn = torch::nn;
  expect_same(Sequential(nn::Linear(8, 64), nn::ReLU(), nn::Linear(64, 32), nn::ReLU(), nn::Linear(32, 2)),
              torch::randn({32, 8}));
}

// What is only like one of them is called as it stands.
TEST(FusedForward, CallsWhatItDoesNotKnow) {
  torch::manual_seed(7);
  namespace nn = torch::nn;
  const auto images = torch::randn({2, 3, 9, 9});
  expect_same(Sequential(nn::ReLU(), nn::MaxPool2d(3)), images, false);
  expect_same(Sequential(nn::ReLU(), nn::MaxPool2d(nn::MaxPool2dOptions(2).stride(1))), images, false);
  expect_same(Sequential(nn::ReLU(), nn::MaxPool2d(nn::MaxPool2dOptions(2).ceil_mode(true))), images, false);
  expect_same(Sequential(nn::ReLU(), nn::MaxPool2d(nn::MaxPool2dOptions(2).padding(1))), images, false);
  expect_same(Sequential(nn::Linear(nn::LinearOptions(9, 4).bias(false)), nn::ReLU()), images, false);
  expect_same(Sequential(nn::MaxPool2d(2), nn::ReLU()), images, false);
  expect_same(Sequential(nn::ReLU()), images, false);
  Sequential none;
  EXPECT_THROW(fused_forward(none, images), c10::Error);
}

// As Sequential does it: what the caller gave is changed, and what is behind a view of it.
TEST(FusedForward, ChangesTheInputWhereALayerSaysSo) {
  namespace nn = torch::nn;
  Sequential first(nn::ReLU(nn::ReLUOptions(true)), nn::MaxPool2d(2));
  Sequential behind_a_view(nn::Flatten(nn::FlattenOptions().start_dim(0).end_dim(0)),
                           nn::ReLU(nn::ReLUOptions(true)), nn::MaxPool2d(2));
  for (auto& layers : {&first, &behind_a_view}) {
    auto x = torch::randn({1, 2, 4, 4}), same = x.clone();
    EXPECT_TRUE(torch::equal(fused_forward(*layers, x), (*layers)->forward(same)));
    EXPECT_TRUE(torch::equal(x, same));
    EXPECT_GE(x.min().item<float>(), 0);
  }
}

}  // namespace
}  // namespace lockstep
