// DataParallel on logical devices of the CPU: what it computes against the bare module, and its errors.
#include "lockstep/parallel/data_parallel.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdlib>

#include "lockstep/comm/cuda_load.h"
#include "lockstep/parallel/device_memory.h"
#include "refusal.h"

namespace lockstep {
namespace {

namespace functional = torch::nn::functional;
using Devices = std::vector<c10::Device>;

Devices logical(size_t count) {
  return Devices(count, at::kCPU);
}

struct Tanh : torch::nn::Cloneable<Tanh> {
  Tanh() { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(5, 7));
    second = register_module("second", torch::nn::Linear(7, 3));
  }
  at::Tensor forward(const at::Tensor& x) { return second->forward(torch::tanh(first->forward(x))); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

// One parameter under two names, used twice.
struct Tied : torch::nn::Cloneable<Tied> {
  Tied() { reset(); }
  void reset() override {
    first = register_module("first", torch::nn::Linear(4, 4));
    again = register_parameter("again", first->weight);
  }
  at::Tensor forward(const at::Tensor& x) { return torch::matmul(torch::tanh(first->forward(x)), again); }
  torch::nn::Linear first{nullptr};
  at::Tensor again;
};

std::vector<at::Tensor> gradients(const torch::nn::Module& module) {
  std::vector<at::Tensor> result;
  for (const auto& parameter : module.parameters()) result.push_back(parameter.grad());
  return result;
}

void expect_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b, double tolerance = 0) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].defined(), b[i].defined()) << i;
    if (!a[i].defined()) continue;
    EXPECT_TRUE(tolerance == 0 ? a[i].equal(b[i]) : torch::allclose(a[i], b[i], tolerance, tolerance)) << i;
  }
}

template <class M>
std::shared_ptr<M> seeded() {
  torch::manual_seed(7);
  return std::make_shared<M>();
}

std::shared_ptr<Tanh> twin_of(const std::shared_ptr<Tanh>& module) {
  return std::dynamic_pointer_cast<Tanh>(module->clone());
}

at::Tensor squares(const at::Tensor& output) {
  return output.square().mean();
}

TEST(DataParallel, TwoDevicesGiveTheBitsOfTwoHalves) {
  const auto bare = seeded<Tanh>();
  const auto model = data_parallel(twin_of(bare), logical(2));
  const auto input = torch::randn({6, 5}).requires_grad_();
  // copies: on some CPUs a product's last bits depend on how its input lies in memory
  const auto halves = torch::cat(
      {bare->forward(input.narrow(0, 0, 3).clone()), bare->forward(input.narrow(0, 3, 3).clone())});
  const auto output = model->forward(input);
  EXPECT_TRUE(output.equal(halves));
  squares(halves).backward();
  const auto of_input = input.grad().clone();
  input.mutable_grad().reset();
  squares(output).backward();
  expect_same(gradients(*bare), gradients(*model->module()));
  EXPECT_TRUE(input.grad().equal(of_input));
}

// Batches that divide, that do not, and that are smaller than the number of devices.
class Batches : public ::testing::TestWithParam<std::tuple<int, int>> {};

TEST_P(Batches, StepsEqualTheBareModules) {
  const auto [devices, samples] = GetParam();
  const auto bare = seeded<Tanh>();
  const auto model = data_parallel(twin_of(bare), logical(static_cast<size_t>(devices)));
  torch::optim::SGD one(bare->parameters(), 0.1), other(model->parameters(), 0.1);
  for (int step = 0; step < 3; ++step) {
    const auto input = torch::randn({samples, 5});
    one.zero_grad();
    other.zero_grad();
    squares(bare->forward(input)).backward();
    squares(model->forward(input)).backward();
    one.step();
    other.step();
  }
  expect_same(bare->parameters(), model->parameters(), 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Sizes, Batches,
                         ::testing::Values(std::tuple{2, 8}, std::tuple{4, 10}, std::tuple{4, 5},
                                           std::tuple{4, 2}, std::tuple{3, 1}, std::tuple{1, 4}));

TEST(DataParallel, LossOfUnevenSharesIsTheWholeBatchs) {
  for (const int samples : {1, 2, 5, 7, 8}) {
    const auto bare = seeded<Tanh>();
    const auto model = data_parallel(twin_of(bare), logical(4));
    const auto input = torch::randn({samples, 5});
    const auto target = torch::randint(3, {samples});
    const auto whole = functional::cross_entropy(bare->forward(input), target);
    const auto shared = model->loss(input, target, [](const at::Tensor& out, const at::Tensor& wanted) {
      return functional::cross_entropy(out, wanted);
    });
    EXPECT_NEAR(whole.item<double>(), shared.item<double>(), 1e-6);
    whole.backward();
    shared.backward();
    expect_same(gradients(*bare), gradients(*model->module()), 1e-6);
  }
}

TEST(DataParallel, WhatOneDeviceThrowsNamesItAndTheNextStepWorks) {
  const auto model = data_parallel(Tanh(), logical(3));
  const auto fails_on = [&](int device) {
    return model->apply(
        [&](Tanh& replica, const at::Tensor& input) {
          if (input[0][0].item<int>() == device) throw InputError("no such word", "a place", "look again");
          return replica.forward(input);
        },
        torch::arange(3).to(torch::kFloat).reshape({3, 1}).expand({3, 5}));
  };
  EXPECT_EQ(test::refusal_of([&] { fails_on(1); }),
            "no such word / device 1 of 3 (cpu), a place / look again");
  EXPECT_EQ(fails_on(-1).size(0), 3);
  EXPECT_EQ(test::error_from<Error>([&] {
              model->forward(torch::randn({4, 6}));
            }).where(),
            "device 0 of 3 (cpu)");
}

TEST(DataParallel, AutocastReachesTheThreads) {
  const auto model = data_parallel(Tanh(), logical(2));
  const auto type_of_output = [&] { return model->forward(torch::randn({4, 5})).scalar_type(); };
  type_of_output();
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  const auto low = type_of_output();
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(at::kCPU, false);
  EXPECT_EQ(low, at::kBFloat16);
  EXPECT_EQ(type_of_output(), at::kFloat);
}

TEST(DataParallel, SharedParametersGetOneGradient) {
  const auto bare = seeded<Tied>();
  const auto model = data_parallel(seeded<Tied>(), logical(3));  // a clone, as a replica is, loses the tie
  const auto input = torch::randn({7, 4});
  squares(bare->forward(input)).backward();
  squares(model->forward(input)).backward();
  expect_same(gradients(*bare), gradients(*model->module()), 1e-6);
}

struct Normed : torch::nn::Cloneable<Normed> {
  Normed() { reset(); }
  void reset() override { norm = register_module("norm", torch::nn::BatchNorm1d(2)); }
  at::Tensor forward(const at::Tensor& x) { return norm->forward(x); }
  torch::nn::BatchNorm1d norm{nullptr};
};

// As PyTorch documents: the first device's statistics are the module's, the others' are lost.
TEST(DataParallel, BatchNormKeepsTheFirstDevicesStatistics) {
  torch::manual_seed(3);
  const auto model = data_parallel(Normed(), logical(2));
  Normed alone;
  for (int step = 0; step < 2; ++step) {
    const auto input = torch::randn({8, 2});
    model->forward(input);
    alone.forward(input.narrow(0, 0, 4));
  }
  expect_same(model->module()->buffers(), alone.buffers(), 1e-6);
  EXPECT_EQ(model->module()->norm->num_batches_tracked.item<int64_t>(), 2);
  model->eval();
  alone.eval();
  const auto input = torch::randn({5, 2});
  EXPECT_TRUE(torch::allclose(model->forward(input), alone.forward(input)));
  model->train();
  model->module()->norm->eval();  // frozen
  EXPECT_TRUE(torch::allclose(model->forward(input), alone.forward(input)));
}

struct Dropped : torch::nn::Cloneable<Dropped> {
  Dropped() { reset(); }
  void reset() override {
    linear = register_module("linear", torch::nn::Linear(16, 16));
    dropout = register_module("dropout", torch::nn::Dropout(0.5));
  }
  at::Tensor forward(const at::Tensor& x) { return dropout->forward(linear->forward(x)); }
  torch::nn::Linear linear{nullptr};
  torch::nn::Dropout dropout{nullptr};
};

TEST(DataParallel, TheSameSeedDropsTheSameWhoeverIsFaster) {
  const auto losses = [] {
    const auto model = data_parallel(seeded<Dropped>(), logical(4));
    std::vector<at::Tensor> outputs;
    for (int step = 0; step < 20; ++step) outputs.push_back(model->forward(torch::ones({64, 16})));
    return torch::stack(outputs);
  };
  EXPECT_TRUE(losses().equal(losses()));
}

TEST(DataParallel, FrozenParametersStayFrozen) {
  const auto model = data_parallel(Tanh(), logical(2));
  model->module()->first->weight.set_requires_grad(false);
  squares(model->forward(torch::randn({4, 5}))).backward();
  EXPECT_FALSE(model->module()->first->weight.grad().defined());
  EXPECT_TRUE(model->module()->first->bias.grad().defined());
}

// As for any module: what a backward needs must not change before it.
TEST(DataParallel, AStepBetweenForwardAndBackwardIsAnError) {
  const auto model = data_parallel(Tanh(), logical(2));
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  squares(model->forward(torch::randn({4, 5}))).backward();
  const auto loss = squares(model->forward(torch::randn({4, 5})));
  optimizer.step();
  model->forward(torch::randn({4, 5}));
  EXPECT_THROW(loss.backward(), std::exception);
}

TEST(DataParallel, ABackwardIsForOnceUnlessTheGraphIsKept) {
  const auto model = data_parallel(Tanh(), logical(2));
  const auto loss = squares(model->forward(torch::randn({4, 5})));
  loss.backward({}, /*retain_graph=*/true);
  const auto once = gradients(*model->module())[0].clone();
  loss.backward();
  EXPECT_TRUE(torch::allclose(gradients(*model->module())[0], 2 * once));
  EXPECT_THROW(loss.backward(), std::exception);
}

struct Bare : torch::nn::Module {
  Bare() { register_module("linear", linear); }
  at::Tensor forward(const at::Tensor& x) { return linear->forward(x); }
  torch::nn::Linear linear{2, 2};
};
struct Wider : Bare {
  Wider() { linear->weight.set_data(torch::zeros({3, 2})); }
};

TEST(DataParallel, AModuleThatCannotBeClonedNeedsAMaker) {
  EXPECT_THROW(data_parallel(Bare(), logical(2)), InputError);
  EXPECT_NO_THROW(data_parallel(Bare(), logical(1)));  // has the module itself
  const auto model = data_parallel(Bare(), logical(2), [] { return std::make_shared<Bare>(); });
  const auto input = torch::randn({4, 2});
  EXPECT_TRUE(torch::allclose(model->forward(input), model->module()->forward(input)));
  EXPECT_THROW(data_parallel(Bare(), logical(2), [] { return std::make_shared<Wider>(); }), InputError);
  EXPECT_THROW(data_parallel(Bare(), logical(2), [] { return std::shared_ptr<Bare>(); }), InputError);
}

TEST(DataParallel, DevicesThatAreNotThereAreRefused) {
  const auto gpus = torch::cuda::device_count();
  const c10::Device missing(at::kCUDA, static_cast<c10::DeviceIndex>(gpus));
  EXPECT_THROW(data_parallel(Tanh(), {missing}), InputError);
  EXPECT_THROW(data_parallel(Tanh(), {at::kCPU, c10::Device(at::kCUDA, 0)}), InputError);
  EXPECT_THROW(devices_like(c10::Device(at::kCUDA, 0), static_cast<int>(gpus) + 1), InputError);
}

// tests/e2e/test_comm.py runs it in its own process, because the CUDA plug-in must be loaded first.
TEST(DataParallelOnGpus, TheSameAsOnTheCpu) {
  if (!std::getenv("LOCKSTEP_TEST_GPU")) GTEST_SKIP() << "needs a GPU, and a process of its own";
  comm::load_cuda();
  const auto bare = seeded<Tanh>();
  auto devices = visible_devices();
  if (devices.size() == 1) devices.push_back(devices.front());
  const auto model = data_parallel(twin_of(bare), devices);
  const auto input = torch::randn({7, 5});
  squares(bare->forward(input)).backward();
  squares(model->forward(input)).backward();
  std::vector<at::Tensor> found;
  for (const auto& gradient : gradients(*model->module())) found.push_back(gradient.cpu());
  expect_same(gradients(*bare), found, 1e-4);
}

// Peak memory a device: logical devices of the CPU by their threads.

constexpr int64_t kMiB = 1 << 20;

at::Tensor mebibytes(int64_t count) {
  return torch::empty({count * kMiB}, torch::kChar);
}

TEST(DeviceMemory, CountsWhatIsHeldAtOnce) {
  parallel::DeviceMemory memory(Devices(2, at::kCPU));
  { const auto first = mebibytes(3); }
  const auto second = mebibytes(2);
  EXPECT_EQ(memory.peaks()[0] / kMiB, 3);
  EXPECT_EQ(memory.peaks()[1], 0);
  memory.restart();
  EXPECT_EQ(memory.peaks()[0] / kMiB, 2);
}

struct Head : torch::nn::Cloneable<Head> {
  Head() { reset(); }
  void reset() override { linear = register_module("linear", torch::nn::Linear(8, 4096)); }
  at::Tensor forward(const at::Tensor& x) { return linear->forward(x); }
  torch::nn::Linear linear{nullptr};
};

at::Tensor loss_of(const at::Tensor& output, const at::Tensor& target) {
  return torch::nn::functional::cross_entropy(output, target);
}

// The point: whoever gathers the outputs and computes the loss holds them all.
TEST(DeviceMemory, GatheredOutputsWeighOnTheFirstDevice) {
  const auto ratio = [](bool inside) {
    parallel::DeviceMemory memory(Devices(2, at::kCPU));
    const auto model = data_parallel(Head(), Devices(2, at::kCPU));
    const auto input = torch::randn({256, 8}), target = torch::randint(4096, {256});
    for (int step = 0; step < 2; ++step)
      (inside ? model->loss(input, target, loss_of) : loss_of(model->forward(input), target)).backward();
    const auto peaks = memory.peaks();
    return static_cast<double>(peaks[0]) / static_cast<double>(peaks[1]);
  };
  EXPECT_GT(ratio(false), 2.0);
  EXPECT_LT(ratio(true), 1.4);
}

}  // namespace
}  // namespace lockstep
