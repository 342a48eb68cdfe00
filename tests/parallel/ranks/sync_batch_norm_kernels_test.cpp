// The CUDA path of SyncBatchNorm on the CPU, with the five kernels that libtorch has for CUDA alone by
// formula. What no CPU can show is that CUDA's do the same.
#include "lockstep/parallel/sync_batch_norm.h"

#include <ATen/record_function.h>
#include <torch/library.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <cstdlib>

#include "gpulab/operators/batch_norm.h"
#include "lockstep/comm/connect.h"
#include "lockstep/comm/cuda_load.h"
#include "parallel/ranks_group.h"

namespace lockstep {
namespace {

namespace formulas = lab::batch_norm;
using test::group;

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
