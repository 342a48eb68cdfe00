#include "lockstep/models/simple_cnn.h"

#include "lockstep/kernels/flattened.h"
#include "lockstep/models/dense.h"
#include "lockstep/models/model.h"
#include "lockstep/models/pooled.h"

namespace lockstep {

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

LOCKSTEP_MODEL(simple_cnn, .help = "two convolutions, two linear layers: the workshop's, for MNIST",
               .make = made<SimpleCNN>, .input_shape = {1, 28, 28}, .classes = 10)

}  // namespace lockstep
