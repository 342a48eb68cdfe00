// SyncBatchNorm against one BatchNorm over the whole global batch: forward, backward, running statistics.
#include "lockstep/parallel/sync_batch_norm.h"

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "ranks.h"

namespace lockstep {
namespace {

const ProcessGroup& norm_group() {
  static const ProcessGroup instance = comm::connect(test::runtime(), {.backend = "gloo"});
  return instance;
}

// how many of `total` samples each rank holds
using Split = std::vector<int64_t>;

Split even(int64_t total) {
  Split split(norm_group()->getSize(), total / norm_group()->getSize());
  split.back() += total % norm_group()->getSize();
  return split;
}

Split all_on_last(int64_t total) {
  Split split(norm_group()->getSize(), 0);
  split.back() = total;
  return split;
}

Split one_on_first(int64_t total) {
  if (norm_group()->getSize() == 1) return {total};
  Split split = all_on_last(total - 1);
  split.front() += 1;
  return split;
}

at::Tensor own_samples(const at::Tensor& global, const Split& split) {
  int64_t first = 0;
  for (int rank = 0; rank < norm_group()->getRank(); ++rank) first += split[rank];
  return global.narrow(0, first, split[norm_group()->getRank()]).clone();
}

// sums the gradient of a replicated parameter over the ranks, as if the loss had been one
at::Tensor summed(const at::Tensor& gradient) {
  std::vector<at::Tensor> sums = {gradient.clone()};
  norm_group()->allreduce(sums)->wait();
  return sums[0];
}

template <class Layer, class Reference>
void expect_same_as_global(Layer synced, Reference reference, const at::Tensor& data, const Split& split) {
  const at::Tensor target = at::randn_like(data);
  for (int step = 0; step < 3; ++step) {
    at::Tensor whole = (data * (step + 1)).detach().requires_grad_();
    at::Tensor part = own_samples(whole.detach(), split).requires_grad_();
    reference->zero_grad();
    synced->zero_grad();
    const at::Tensor expected = reference->forward(whole), got = synced->forward(part);
    EXPECT_TRUE(at::allclose(got, own_samples(expected.detach(), split), 1e-9, 1e-9));
    (expected * target).sum().backward();
    (got * own_samples(target, split)).sum().backward();
    EXPECT_TRUE(at::allclose(part.grad(), own_samples(whole.grad(), split), 1e-7, 1e-7));
    EXPECT_TRUE(at::allclose(summed(synced->weight.grad()), reference->weight.grad(), 1e-9, 1e-9));
    EXPECT_TRUE(at::allclose(summed(synced->bias.grad()), reference->bias.grad(), 1e-9, 1e-9));
  }
  EXPECT_TRUE(at::allclose(synced->running_mean, reference->running_mean, 1e-12, 1e-12));
  EXPECT_TRUE(at::allclose(synced->running_var, reference->running_var, 1e-12, 1e-12));
  EXPECT_EQ(synced->num_batches_tracked.template item<int64_t>(), 3);
  synced->eval();
  reference->eval();
  EXPECT_TRUE(at::allclose(synced->forward(data), reference->forward(data)));
}

class Splits : public ::testing::TestWithParam<Split (*)(int64_t)> {};

TEST_P(Splits, ConvertedBatchNorm2dEqualsTheGlobalBatch) {
  torch::manual_seed(1);
  const at::Tensor data = at::randn({16, 5, 3, 4}, at::kDouble) * 3 + 2;
  torch::nn::BatchNorm2d synced(5), reference(5);
  synced->to(at::kDouble);
  reference->to(at::kDouble);
  convert_sync_batchnorm(synced, norm_group());
  expect_same_as_global(synced, reference, data, GetParam()(16));
}

// A layer as a TorchScript module holds it: forward is a script, and the tensors are known by their names
// alone. The optimiser differentiates what has several operations.
struct ScriptedNorm : torch::nn::Module {
  explicit ScriptedNorm(int64_t features) : script("norm") {
    weight = register_parameter("weight", at::ones({features}, at::kDouble));
    bias = register_parameter("bias", at::zeros({features}, at::kDouble));
    running_mean = register_buffer("running_mean", at::zeros({features}, at::kDouble));
    running_var = register_buffer("running_var", at::ones({features}, at::kDouble));
    num_batches_tracked = register_buffer("num_batches_tracked", at::zeros({}, at::kLong));
    script.register_parameter("weight", weight, false);
    script.register_parameter("bias", bias, false);
    for (const auto& buffer : named_buffers()) script.register_buffer(buffer.key(), buffer.value());
    script.define(R"(
      def forward(self, x, training: bool):
        if training:
          self.num_batches_tracked += 1
        y = torch.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var, training, 0.1, 1e-5, True)
        return torch.neg(torch.neg(y))
    )");
  }
  at::Tensor forward(const at::Tensor& x) { return script.forward({x, is_training()}).toTensor(); }

  at::Tensor weight, bias, running_mean, running_var, num_batches_tracked;
  torch::jit::Module script;
};

TEST_P(Splits, AScriptStaysTheGlobalBatchForwardAfterForward) {
  const torch::jit::GraphOptimizerEnabledGuard optimised(true);  // and back after this test
  torch::manual_seed(6);
  const at::Tensor data = at::randn({12, 4, 6}, at::kDouble) * 3 + 2;
  const auto synced = std::make_shared<ScriptedNorm>(4);
  torch::nn::BatchNorm1d reference(4);
  reference->to(at::kDouble);
  convert_sync_batchnorm(synced, norm_group());
  expect_same_as_global(synced, reference, data, GetParam()(12));
}

INSTANTIATE_TEST_SUITE_P(SyncBatchNorm, Splits, ::testing::Values(even, all_on_last, one_on_first));

TEST(SyncBatchNorm, TheLayerItselfTakesOneSampleARank) {
  torch::manual_seed(3);
  const at::Tensor data = at::randn({norm_group()->getSize() * 1 + 1, 7});
  Split split(norm_group()->getSize(), 1);
  split.back() += 1;
  SyncBatchNorm synced(7, norm_group());
  torch::nn::BatchNorm1d reference(7);
  EXPECT_TRUE(at::allclose(synced.forward(own_samples(data, split)),
                           own_samples(reference->forward(data), split), 1e-5, 1e-6));
  EXPECT_TRUE(at::allclose(synced.running_var, reference->running_var));
}

TEST(SyncBatchNorm, ConvertsInsideAUsersModuleAndLeavesOthersAlone) {
  struct Net : torch::nn::Module {
    torch::nn::BatchNorm1d norm{register_module("norm", torch::nn::BatchNorm1d(3))};
    at::Tensor forward(const at::Tensor& x) { return norm->forward(x); }
  };
  torch::manual_seed(4);
  const int world = norm_group()->getSize();
  const at::Tensor data = at::randn({8 * world, 3});
  const Split split(world, 8);
  auto net = std::make_shared<Net>();
  convert_sync_batchnorm(net, norm_group());
  torch::nn::BatchNorm1d global(3), local(3);
  EXPECT_TRUE(at::allclose(net->forward(own_samples(data, split)), own_samples(global->forward(data), split),
                           1e-5, 1e-6));
  const at::Tensor mine = own_samples(data, split);
  EXPECT_TRUE(at::allclose(local->forward(mine), (mine - mine.mean(0)) / (mine.var(0, false) + 1e-5).sqrt(),
                           1e-5, 1e-6));
}

TEST(SyncBatchNorm, OneValueAChannelIsRefusedOnEveryRank) {
  SyncBatchNorm layer(2, norm_group());
  const int64_t mine = norm_group()->getRank() == 0 ? 1 : 0;
  EXPECT_THROW(layer.forward(at::zeros({mine, 2})), InputError);
}

}  // namespace
}  // namespace lockstep
