// The networks for small images: the workshop's, and the same in two stages.
#include "lockstep/models/simple_cnn.h"

#include <torch/cuda.h>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/kernels/conv_pool_relu.h"
#include "lockstep/kernels/flattened.h"
#include "lockstep/kernels/pool_relu.h"
#include "lockstep/models/dense.h"
#include "lockstep/models/model.h"

namespace lockstep {
namespace {

// 3 x 3, which leaves images as large as they are.
torch::nn::Conv2dOptions same_size(int64_t in, int64_t out) {
  return torch::nn::Conv2dOptions(in, out, 3).padding(1);
}

// relu and a pool of 2 x 2 behind it; with kernels of our own, or to libtorch's bits.
at::Tensor pooled(torch::nn::Conv2d& conv, const at::Tensor& x, bool own_kernels) {
  return own_kernels ? conv_pool_relu(x, conv->weight, conv->bias) : pool_relu(conv->forward(x));
}

}  // namespace

SimpleCNN::SimpleCNN()
    : conv1_(same_size(1, 32)), conv2_(same_size(32, 64)), fc1_(7 * 7 * 64, 128), fc2_(128, 10) {
  register_module("conv1", conv1_);
  register_module("conv2", conv2_);
  register_module("fc1", fc1_);
  register_module("fc2", fc2_);
}

torch::Tensor SimpleCNN::forward(const torch::Tensor& input) {
  auto x = pooled(conv1_, input, own_kernels_);
  x = pooled(conv2_, x, own_kernels_);
  x = with_relu(*fc1_, flattened(x));
  return alone(*fc2_, x);
}

std::vector<Part> SimpleCNN::chain() {
  return {{"conv1", [this](const torch::Tensor& x) { return pooled(conv1_, x, own_kernels_); }},
          {"conv2", [this](const torch::Tensor& x) { return pooled(conv2_, x, own_kernels_); }},
          {"fc1", [this](const torch::Tensor& x) { return with_relu(*fc1_, flattened(x)); }},
          {"fc2", [this](const torch::Tensor& x) { return alone(*fc2_, x); }}};
}

LOCKSTEP_MODEL(simple_cnn, .help = "two convolutions, two linear layers, for MNIST", .make = made<SimpleCNN>,
               .input_shape = {1, 28, 28}, .classes = 10)

namespace {

constexpr int64_t kStages = 2;
constexpr int64_t kHidden = 128;
constexpr const char* kKey = "model.devices";

int64_t channels_of(const std::vector<int64_t>& shape) {
  if (shape.size() == 3 && shape[1] >= 4 && shape[2] >= 4) return shape[0];
  throw InputError("the model two_stage takes images of 4 x 4 pixels or more", "model.name",
                   "use mlp, or an exported or torchscript model");
}

// A CPU is cut into as many logical devices as there are stages.
torch::Device cpu_stage(int64_t wanted, torch::Device cpu) {
  if (wanted < kStages) return cpu;
  throw InputError(format("device {} does not exist: a CPU has the logical devices 0 and 1", wanted), kKey,
                   "set it to [0, 1], or use GPUs");
}

// `first`: the number of the first stage's, which is `own`.
torch::Device gpu_stage(int64_t wanted, int64_t first, torch::Device own) {
  const auto visible = static_cast<int64_t>(torch::cuda::device_count());
  const int64_t index = own.index() + wanted - first;
  if (index >= 0 && index < visible) return {torch::kCUDA, static_cast<c10::DeviceIndex>(index)};
  throw InputError(format("GPU {} does not exist: the first stage is on {}, and this process sees {} GPUs",
                          index, own.str(), visible),
                   kKey, "start fewer ranks on each node, and let each see all of its GPUs");
}

/// simple_cnn in two stages, each on a device of its own: model parallelism inside one rank. The layers have
/// the same names and are drawn in the same order, so for MNIST the bits are simple_cnn's.
class TwoStage : public Net {
 public:
  /// `devices`: where the convolutions and where the linear layers are, among a rank's own devices.
  TwoStage(const std::vector<int64_t>& input_shape, int64_t hidden, int64_t classes,
           std::vector<int64_t> devices)
      : conv1_(same_size(channels_of(input_shape), 32)),
        conv2_(same_size(32, 64)),
        fc1_(64 * (input_shape[1] / 4) * (input_shape[2] / 4), hidden),
        fc2_(hidden, classes),
        devices_(std::move(devices)) {
    if (devices_.size() != kStages)
      throw InputError(format("two_stage has {} stages, but {} devices are given", kStages, devices_.size()),
                       kKey, "give two, such as [0, 1]");
    register_module("conv1", conv1_);
    register_module("conv2", conv2_);
    register_module("fc1", fc1_);
    register_module("fc2", fc2_);
  }

  /// The input goes to the first stage's device, the output comes from the second's.
  torch::Tensor forward(const torch::Tensor& input) override {
    auto x = pooled(conv1_, input.to(first_), own_kernels_);
    x = pooled(conv2_, x, own_kernels_);
    x = flattened(x.to(second_));
    return fc2_->forward(torch::relu(fc1_->forward(x)));
  }

  /// Puts the first stage on this GPU, and the second as far from it as their numbers in `devices` are apart;
  /// a CPU's devices are logical. InputError for a device that does not exist.
  void to(torch::Device device, bool non_blocking = false) override {
    const auto place = [&](int64_t wanted) {
      return device.is_cpu() ? cpu_stage(wanted, device) : gpu_stage(wanted, devices_[0], device);
    };
    first_ = place(devices_[0]);
    second_ = place(devices_[1]);
    conv1_->to(first_, non_blocking);
    conv2_->to(first_, non_blocking);
    fc1_->to(second_, non_blocking);
    fc2_->to(second_, non_blocking);
  }

  bool use_own_kernels() override { return own_kernels_ = true; }

 private:
  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::Linear fc1_, fc2_;
  bool own_kernels_ = false;
  std::vector<int64_t> devices_;
  torch::Device first_ = torch::kCPU, second_ = torch::kCPU;
};

std::shared_ptr<Net> make_two_stage(const ModelRequest& wanted) {
  const auto& [devices, hidden] = std::tie(wanted.settings.devices, wanted.settings.hidden);
  if (hidden.size() > 1)
    throw InputError("two_stage has one hidden layer", "model.hidden", "give one width, or none for 128");
  return std::make_shared<TwoStage>(wanted.input_shape, hidden.empty() ? kHidden : hidden.front(),
                                    wanted.classes, devices.empty() ? std::vector<int64_t>{0, 1} : devices);
}

}  // namespace

LOCKSTEP_MODEL(two_stage,
               .help =
                   "simple_cnn in two stages, each on one of `devices`; `hidden` is the width between its "
                   "linear layers, 128 if empty",
               .reads = {"devices", "hidden"}, .make = make_two_stage)

}  // namespace lockstep
