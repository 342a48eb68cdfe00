// Peak memory a device: logical devices of the CPU by their threads.
#include "lockstep/parallel/device_memory.h"

#include <gtest/gtest.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/parallel/data_parallel.h"

namespace lockstep {
namespace {

using Devices = std::vector<c10::Device>;
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
