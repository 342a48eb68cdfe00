// SyncBatchNorm against one BatchNorm over the whole global batch: forward, backward, running statistics.
#include "lockstep/parallel/sync_batch_norm.h"

#include <ATen/record_function.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/library.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdlib>

#include "gpulab/operators/batch_norm.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/connect.h"
#include "lockstep/comm/cuda_load.h"
#include "parallel/ranks_group.h"

namespace lockstep {
namespace {

using test::group;

// how many of `total` samples each rank holds
using Split = std::vector<int64_t>;

Split even(int64_t total) {
  Split split(group()->getSize(), total / group()->getSize());
  split.back() += total % group()->getSize();
  return split;
}

Split all_on_last(int64_t total) {
  Split split(group()->getSize(), 0);
  split.back() = total;
  return split;
}

Split one_on_first(int64_t total) {
  if (group()->getSize() == 1) return {total};
  Split split = all_on_last(total - 1);
  split.front() += 1;
  return split;
}

at::Tensor own_samples(const at::Tensor& global, const Split& split) {
  int64_t first = 0;
  for (int rank = 0; rank < group()->getRank(); ++rank) first += split[rank];
  return global.narrow(0, first, split[group()->getRank()]).clone();
}

// sums the gradient of a replicated parameter over the ranks, as if the loss had been one
at::Tensor summed(const at::Tensor& gradient) {
  std::vector<at::Tensor> sums = {gradient.clone()};
  group()->allreduce(sums)->wait();
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
  convert_sync_batchnorm(synced, group());
  expect_same_as_global(synced, reference, data, GetParam()(16));
}

// A layer as a TorchScript module holds it: forward is a script, and the tensors are known by their names
// alone. The optimizer differentiates what has several operations.
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
  const torch::jit::GraphOptimizerEnabledGuard optimized(true);  // and back after this test
  torch::manual_seed(6);
  const at::Tensor data = at::randn({12, 4, 6}, at::kDouble) * 3 + 2;
  const auto synced = std::make_shared<ScriptedNorm>(4);
  torch::nn::BatchNorm1d reference(4);
  reference->to(at::kDouble);
  convert_sync_batchnorm(synced, group());
  expect_same_as_global(synced, reference, data, GetParam()(12));
}

INSTANTIATE_TEST_SUITE_P(SyncBatchNorm, Splits, ::testing::Values(even, all_on_last, one_on_first));

TEST(SyncBatchNorm, TheLayerItselfTakesOneSampleARank) {
  torch::manual_seed(3);
  const at::Tensor data = at::randn({group()->getSize() * 1 + 1, 7});
  Split split(group()->getSize(), 1);
  split.back() += 1;
  SyncBatchNorm synced(7, group());
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
  const int world = group()->getSize();
  const at::Tensor data = at::randn({8 * world, 3});
  const Split split(world, 8);
  auto net = std::make_shared<Net>();
  convert_sync_batchnorm(net, group());
  torch::nn::BatchNorm1d global(3), local(3);
  EXPECT_TRUE(at::allclose(net->forward(own_samples(data, split)), own_samples(global->forward(data), split),
                           1e-5, 1e-6));
  const at::Tensor mine = own_samples(data, split);
  EXPECT_TRUE(at::allclose(local->forward(mine), (mine - mine.mean(0)) / (mine.var(0, false) + 1e-5).sqrt(),
                           1e-5, 1e-6));
}

TEST(SyncBatchNorm, OneValueAChannelIsRefusedOnEveryRank) {
  SyncBatchNorm layer(2, group());
  const int64_t mine = group()->getRank() == 0 ? 1 : 0;
  EXPECT_THROW(layer.forward(at::zeros({mine, 2})), InputError);
}

// The CUDA path of SyncBatchNorm on the CPU, with the five kernels that libtorch has for CUDA alone by
// formula. What no CPU can show is that CUDA's do the same.

namespace formulas = lab::batch_norm;

void give_the_cpu_kernels() {
  static torch::Library* const library = [] {
    auto* cpu = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    cpu->impl("batch_norm_stats", &formulas::stats);
    cpu->impl("batch_norm_gather_stats_with_counts", &formulas::gather_with_counts);
    cpu->impl("batch_norm_elemt", &formulas::apply);
    cpu->impl("batch_norm_backward_reduce", &formulas::reduce_backward);
    cpu->impl("batch_norm_backward_elemt", &formulas::apply_backward);
    return cpu;
  }();
  (void)library;
}

struct Result {
  at::Tensor output, input_gradient, weight_gradient, bias_gradient, running_mean, running_var;
};

using Norm = at::Tensor (*)(const at::Tensor&, const at::Tensor&, const at::Tensor&, const at::Tensor&,
                            const at::Tensor&, double, double, const ProcessGroup&);

Result run(Norm norm, const at::Tensor& data, const at::Tensor& target, bool affine = true) {
  const int64_t channels = data.size(1);
  const at::Tensor input = data.detach().clone().requires_grad_();
  const at::Tensor weight =
      affine ? at::linspace(0.5, 2, channels, data.options()).requires_grad_() : at::Tensor();
  const at::Tensor bias = affine ? at::ones({channels}, data.options()).requires_grad_() : at::Tensor();
  const at::Tensor mean = at::zeros({channels}, data.options()), var = at::ones({channels}, data.options());
  const at::Tensor output = norm(input, weight, bias, mean, var, 0.1, 1e-5, group());
  (output * target).sum().backward();
  return {output.detach(),
          input.grad(),
          affine ? weight.grad() : at::Tensor(),
          affine ? bias.grad() : at::Tensor(),
          mean,
          var};
}

void expect_alike(const Result& got, const Result& want, double tolerance) {
  const auto alike = [&](const at::Tensor& a, const at::Tensor& b) {
    if (!a.defined() || !b.defined())
      return (!a.defined() || a.numel() == 0 || a.eq(0).all().item<bool>()) &&
             (!b.defined() || b.numel() == 0 || b.eq(0).all().item<bool>());
    return at::allclose(a.cpu(), b, tolerance, tolerance);
  };
  for (const auto member : {&Result::output, &Result::input_gradient, &Result::weight_gradient,
                            &Result::bias_gradient, &Result::running_mean, &Result::running_var})
    EXPECT_TRUE(alike(got.*member, want.*member));
}

// This rank's samples: `empty` has none.
at::Tensor own_data(int empty, at::IntArrayRef rest) {
  std::vector<int64_t> shape = {test::rank() == empty ? 0 : 3 + test::rank()};
  shape.insert(shape.end(), rest.begin(), rest.end());
  return at::randn(shape, at::detail::createCPUGenerator(7 + static_cast<uint64_t>(test::rank())),
                   at::kDouble) *
             3 +
         2;
}

// The composed path is held to one BatchNorm over the global batch; this one is held to the composed path.
TEST(SyncNormByKernels, EqualsTheComposedPathWhereverSamplesAreMissing) {
  give_the_cpu_kernels();
  const int nobody = -1, first = 0, last = test::world() - 1;
  for (const int empty : {nobody, first, last}) {
    if (test::world() == 1 && empty != nobody) continue;
    for (const bool affine : {true, false}) {
      const at::Tensor data = own_data(empty, {5, 2, 3});
      const at::Tensor target = at::randn_like(data);
      expect_alike(run(parallel::sync_batch_norm_by_kernels, data, target, affine),
                   run(parallel::sync_batch_norm, data, target, affine), 1e-9);
    }
  }
}

std::vector<std::string>& waits() {
  static std::vector<std::string> names;
  return names;
}

// What makes the host wait for a device: to read a number, or to learn a shape.
std::unique_ptr<at::ObserverContext> note_waits(const at::RecordFunction& function) {
  for (const char* name : {"aten::item", "aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero"})
    if (std::string(function.name()) == name) waits().emplace_back(name);
  return nullptr;
}

TEST(SyncNormByKernels, NothingWaitsForTheDevice) {
  give_the_cpu_kernels();
  const at::Tensor data = own_data(0, {4}), target = at::ones_like(data);
  const auto handle = at::addGlobalCallback(at::RecordFunctionCallback(note_waits));
  waits().clear();
  run(parallel::sync_batch_norm_by_kernels, data, target);
  EXPECT_TRUE(waits().empty()) << waits().front();
  run(parallel::sync_batch_norm, data, target);
  EXPECT_FALSE(waits().empty()) << "the composed path reads a count: this test would see it";
  at::removeCallback(handle);
}

// tests/e2e/test_comm.py runs it in its own process, because the CUDA plug-in must be loaded first.
TEST(SyncNormOnAGpu, EqualsTheCpu) {
  if (!std::getenv("LOCKSTEP_TEST_GPU")) GTEST_SKIP() << "needs a GPU a rank, and a process of its own";
  // two ranks may share a GPU, where NCCL lets them
  const int own = test::runtime().job().local_rank % comm::cuda_device_count();
  const c10::Device device(c10::kCUDA, static_cast<c10::DeviceIndex>(own));
  for (const int empty : {-1, 0, test::world() - 1}) {
    if (test::world() == 1 && empty != -1) continue;
    const at::Tensor data = own_data(empty, {5, 2, 3}).to(at::kFloat), target = at::randn_like(data);
    const auto on_gpu = [](const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias,
                           const at::Tensor& mean, const at::Tensor& var, double momentum, double eps,
                           const ProcessGroup&) {
      static const ProcessGroup gpus = comm::connect(test::runtime(), {.backend = "nccl"}, input.device());
      return parallel::sync_batch_norm(input, weight, bias, mean, var, momentum, eps, gpus);
    };
    expect_alike(run(on_gpu, data.to(device), target.to(device)),
                 run(parallel::sync_batch_norm, data, target), 1e-4);
  }
}

}  // namespace
}  // namespace lockstep
