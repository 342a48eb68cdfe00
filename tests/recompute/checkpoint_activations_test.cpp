#include "lockstep/recompute/checkpoint_activations.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/nn.h>

#include <thread>

#include "live_bytes.h"
#include "refusal.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

using Tensors = std::vector<at::Tensor>;

struct Block : torch::nn::Module {
  explicit Block(int64_t width = 8) : first(width, 4 * width), norm(4 * width), second(4 * width, width) {
    register_module("first", first);
    register_module("norm", norm);
    register_module("second", second);
  }
  at::Tensor forward(const at::Tensor& x) {
    ++calls;
    return x + second->forward(at::dropout(norm->forward(first->forward(x)).relu_(), 0.3, is_training()));
  }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear second;
  int calls = 0;
};

struct Outcome {
  Tensors tensors;  // output, gradients, buffers, what is drawn next
  int64_t most_bytes = 0;
};

// Two steps of some blocks, with or without.
Outcome train(bool checkpointing, int blocks = 3, int64_t rows = 16, int64_t width = 8) {
  torch::manual_seed(3);
  std::vector<std::shared_ptr<Block>> layers;
  for (int i = 0; i < blocks; ++i) layers.push_back(std::make_shared<Block>(width));
  const auto input = at::randn({rows, width});
  Outcome outcome;
  const test::LiveBytes bytes;
  for (int step = 0; step < 2; ++step) {
    auto x = input;
    for (const auto& layer : layers) x = checkpointing ? checkpoint_activations(layer, x) : layer->forward(x);
    outcome.tensors.push_back(x.detach());
    x.square().mean().backward();
  }
  outcome.most_bytes = bytes.most();
  for (const auto& layer : layers) {
    for (const auto& parameter : layer->parameters()) outcome.tensors.push_back(parameter.grad());
    for (const auto& buffer : layer->buffers()) outcome.tensors.push_back(buffer);
  }
  outcome.tensors.push_back(at::randn({4}));
  return outcome;
}

void expect_equal(const Tensors& one, const Tensors& other) {
  ASSERT_EQ(one.size(), other.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], other[i])) << i;
}

TEST(CheckpointActivations, GivesTheBitsOfARunWithoutIt) {
  expect_equal(train(true).tensors, train(false).tensors);
}

TEST(CheckpointActivations, HoldsTheActivationsOfOneBlockAndNotOfAll) {
  const auto with = train(true, 12, 256, 32).most_bytes, without = train(false, 12, 256, 32).most_bytes;
  EXPECT_LT(3 * with, without) << with << " and " << without;
}

TEST(CheckpointActivations, StopsWhereBackwardNeedsNoMore) {
  int reached = 0;
  const auto weight = at::randn({4, 4}).requires_grad_();
  const auto y = checkpoint_activations(
      [&](const at::Tensor& x) {
        const auto product = at::mm(x, weight);
        ++reached;
        return product;
      },
      at::randn({2, 4}));
  y.sum().backward();
  EXPECT_EQ(reached, 1) << "the product is needed by nobody";
}

TEST(CheckpointActivations, TakesSeveralInputsAndGivesSeveralOutputs) {
  const auto run = [](bool checkpointing) {
    torch::manual_seed(1);
    const auto a = at::randn({3}).requires_grad_(), b = at::randn({3}).requires_grad_();
    const at::Tensor none;
    const double factor = 2.5;
    const auto both = [factor](const at::Tensor& x, const at::Tensor& y, const at::Tensor& none) {
      return Tensors{(x * y).exp() * factor, none.defined() ? x : (x - y).tanh()};
    };
    const auto out = checkpointing ? checkpoint_activations(both, a, b, none) : both(a, b, none);
    (out[0] * out[1]).sum().backward();
    return Tensors{out[0].detach(), out[1].detach(), a.grad(), b.grad()};
  };
  expect_equal(run(true), run(false));
}

TEST(CheckpointActivations, GoesThroughABackwardAgainAndASecondDerivative) {
  const auto run = [](bool checkpointing) {
    torch::manual_seed(1);
    const auto x = at::randn({3}).requires_grad_();
    const auto f = [](const at::Tensor& z) { return z.sin().exp() * z; };
    const auto y = (checkpointing ? checkpoint_activations(f, x) : f(x)).sum();
    const auto first = torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true)[0];
    const auto again = torch::autograd::grad({y}, {x}, {}, true, /*create_graph=*/true)[0];
    const auto second = torch::autograd::grad({again.sum()}, {x})[0];
    return Tensors{first, again.detach(), second};
  };
  expect_equal(run(true), run(false));
}

TEST(CheckpointActivations, WithinAnotherOneAndAroundABackwardOfItsOwn) {
  const auto run = [](bool outer, bool inner) {
    torch::manual_seed(1);
    const auto x = at::randn({3}).requires_grad_();
    const auto wave = [](const at::Tensor& z) { return at::dropout(z.sin().exp(), 0.5, true); };
    const auto slope = [&](const at::Tensor& z) {
      const auto y = inner ? checkpoint_activations(wave, z) : wave(z);
      return y * torch::autograd::grad({y.sum()}, {z}, {}, true, true)[0];
    };
    const auto y = outer ? checkpoint_activations(slope, x * 1) : slope(x * 1);
    y.sum().backward();
    return Tensors{y.detach(), x.grad()};
  };
  expect_equal(run(true, true), run(false, false));
  expect_equal(run(true, false), run(false, false));
  expect_equal(run(false, true), run(false, false));
}

TEST(CheckpointActivations, ComputesAgainUnderTheSameAutocast) {
  const auto run = [](bool checkpointing) {
    torch::manual_seed(1);
    torch::nn::Linear layer(8, 8);
    const auto x = at::randn({4, 8}).requires_grad_();
    const auto part = [layer](const at::Tensor& z) mutable {
      return layer->forward(layer->forward(z).relu());
    };
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::increment_nesting();
    auto copy = part;
    const auto y = checkpointing ? checkpoint_activations(part, x) : copy(x);
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
    EXPECT_EQ(y.scalar_type(), at::kBFloat16);
    y.sum().backward();
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
    return Tensors{y.detach(), x.grad(), layer->weight.grad()};
  };
  expect_equal(run(true), run(false));
}

std::string error_of(const std::function<void()>& work) {
  return describe(test::error_from<Error>(work));
}

TEST(CheckpointActivations, SaysWhatMakesTheSecondTimeUnlikeTheFirst) {
  const auto x = at::randn({3}).requires_grad_();
  auto input = x * 1;
  auto y = checkpoint_activations([](const at::Tensor& z) { return z.sin(); }, input);
  input.add_(1);
  EXPECT_THAT(error_of([&] { y.sum().backward(); }),
              HasSubstr("input 0 was changed in place after the forward"));
  input = x * 1;
  y = checkpoint_activations([](const at::Tensor& z) { return z.add_(1).sin(); }, input);
  EXPECT_THAT(error_of([&] { y.sum().backward(); }),
              HasSubstr("input 0 was changed in place by the function"));
  int call = 0;
  y = checkpoint_activations([&](const at::Tensor& z) { return call++ ? z + 1 : z.sin(); }, x);
  EXPECT_THAT(error_of([&] { y.sum().backward(); }),
              HasSubstr("kept 0 tensors for backward, but 1 the first time"));
  call = 0;
  y = checkpoint_activations([&](const at::Tensor& z) { return (call++ ? z.slice(0, 1) : z).sin(); }, x);
  EXPECT_THAT(error_of([&] { y.sum().backward(); }), HasSubstr("is Float [2], but was Float [3]"));
}

TEST(CheckpointActivations, LetsAnErrorOfTheFunctionThrough) {
  const auto x = at::randn({3}).requires_grad_();
  EXPECT_THROW(
      checkpoint_activations([](const at::Tensor&) -> at::Tensor { throw std::runtime_error("its own"); }, x),
      std::runtime_error);
  EXPECT_TRUE(x.sin().sum().grad_fn()) << "nothing is left in force";
}

TEST(CheckpointActivations, ThreadsDoNotHearOfEachOther) {
  const auto x = at::randn({3}).requires_grad_();
  const auto whole = [](const at::Tensor& z) { return z.sin().exp(); };
  Tensors gradients(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < gradients.size(); ++i)
    threads.emplace_back([&, i] {
      const auto own = x.detach().requires_grad_();
      const auto y = i % 2 ? checkpoint_activations(whole, own) : whole(own);
      y.sum().backward();
      gradients[i] = own.grad();
    });
  for (auto& thread : threads) thread.join();
  for (const auto& gradient : gradients) EXPECT_TRUE(at::equal(gradient, gradients[0]));
}

}  // namespace
}  // namespace lockstep
