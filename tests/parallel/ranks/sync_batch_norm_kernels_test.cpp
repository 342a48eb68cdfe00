// The CUDA path of SyncBatchNorm on the CPU: libtorch's five kernels, which it has for CUDA alone, written
// out here after aten/src/ATen/native/cuda/Normalization.cuh. What no CPU can show is that CUDA's do the
// same.
#include "lockstep/parallel/sync_batch_norm.h"

#include <ATen/record_function.h>
#include <torch/library.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdlib>

#include "lockstep/comm/connect.h"
#include "lockstep/comm/cuda_load.h"
#include "parallel/ranks_group.h"

namespace lockstep {
namespace {

using test::group;
using OptionalTensor = std::optional<at::Tensor>;

std::vector<int64_t> all_but_channels(const at::Tensor& input) {
  std::vector<int64_t> dims = {0};
  for (int64_t d = 2; d < input.dim(); ++d) dims.push_back(d);
  return dims;
}

at::Tensor along_channels(const at::Tensor& values, const at::Tensor& input) {
  std::vector<int64_t> shape(input.dim(), 1);
  shape[1] = -1;
  return values.view(shape);
}

bool given(const OptionalTensor& tensor) {
  return tensor && tensor->defined();
}

std::tuple<at::Tensor, at::Tensor> stats(const at::Tensor& input, double eps) {
  const auto dims = all_but_channels(input);
  const auto [var, mean] = at::var_mean(input, at::OptionalIntArrayRef(dims), c10::Scalar(0), false);
  return {mean, (var + eps).rsqrt()};
}

// batch_norm_reduce_statistics_kernel, with its divisions by invstd and by the count so far
std::tuple<at::Tensor, at::Tensor> gather_stats(const at::Tensor&, const at::Tensor& means,
                                                const at::Tensor& invstds, const OptionalTensor& running_mean,
                                                const OptionalTensor& running_var, double momentum,
                                                double eps, const at::Tensor& counts) {
  at::Tensor mean = at::zeros_like(means[0]), var_n = at::zeros_like(mean), n = at::zeros_like(mean);
  for (int64_t rank = 0; rank < means.size(0); ++rank) {
    const at::Tensor count = counts[rank], own_std = invstds[rank].reciprocal();
    const at::Tensor factor = (n + count).reciprocal();
    var_n = var_n + (own_std * own_std - eps) * count + (means[rank] - mean).square() * n * count * factor;
    mean = n * factor * mean + count * factor * means[rank];
    n = n + count;
  }
  if (given(running_mean)) running_mean->mul_(1 - momentum).add_(mean, momentum);
  if (given(running_var)) running_var->mul_(1 - momentum).add_(var_n / (n - 1), momentum);
  return {mean, (var_n / n + eps).rsqrt()};
}

at::Tensor elemt(const at::Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                 const at::Tensor& mean, const at::Tensor& invstd, double) {
  at::Tensor result = (input - along_channels(mean, input)) * along_channels(invstd, input);
  if (given(weight)) result = result * along_channels(*weight, input);
  return given(bias) ? result + along_channels(*bias, input) : result;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> backward_reduce(
    const at::Tensor& dy, const at::Tensor& input, const at::Tensor& mean, const at::Tensor& invstd,
    const OptionalTensor&, bool of_input, bool of_weight, bool of_bias) {
  const auto dims = all_but_channels(input);
  const at::Tensor sum_dy = dy.sum(dims), sum_dy_xmu = (dy * (input - along_channels(mean, input))).sum(dims);
  return {of_input ? sum_dy : at::Tensor(), of_input ? sum_dy_xmu : at::Tensor(),
          of_weight ? sum_dy_xmu * invstd : at::Tensor(), of_bias ? sum_dy : at::Tensor()};
}

at::Tensor backward_elemt(const at::Tensor& dy, const at::Tensor& input, const at::Tensor& mean,
                          const at::Tensor& invstd, const OptionalTensor& weight, const at::Tensor& sum_dy,
                          const at::Tensor& sum_dy_xmu, const at::Tensor& count) {
  const at::Tensor share = count.sum().to(sum_dy.scalar_type()).reciprocal();
  const at::Tensor slope = invstd.square() * sum_dy_xmu * share;
  const at::Tensor scale = given(weight) ? invstd * *weight : invstd;
  return (dy - along_channels(sum_dy * share, input) -
          (input - along_channels(mean, input)) * along_channels(slope, input)) *
         along_channels(scale, input);
}

void give_the_cpu_kernels() {
  static torch::Library* const library = [] {
    auto* cpu = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    cpu->impl("batch_norm_stats", stats);
    cpu->impl("batch_norm_gather_stats_with_counts", gather_stats);
    cpu->impl("batch_norm_elemt", elemt);
    cpu->impl("batch_norm_backward_reduce", backward_reduce);
    cpu->impl("batch_norm_backward_elemt", backward_elemt);
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
  EXPECT_TRUE(alike(got.output, want.output));
  EXPECT_TRUE(alike(got.input_gradient, want.input_gradient));
  EXPECT_TRUE(alike(got.weight_gradient, want.weight_gradient));
  EXPECT_TRUE(alike(got.bias_gradient, want.bias_gradient));
  EXPECT_TRUE(alike(got.running_mean, want.running_mean));
  EXPECT_TRUE(alike(got.running_var, want.running_var));
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

// Run by tests/e2e/test_comm.py in a process of its own, because the CUDA half has to come first.
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
