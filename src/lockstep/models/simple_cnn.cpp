#include "lockstep/models/simple_cnn.h"

#include "lockstep/kernels/pool_relu.h"
#include "lockstep/models/model.h"

namespace lockstep {
namespace {

torch::nn::Conv2dOptions same_size(int64_t in, int64_t out) {
  return torch::nn::Conv2dOptions(in, out, 3).padding(1);
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
  auto x = pool_relu(conv1_->forward(input));
  x = pool_relu(conv2_->forward(x));
  x = torch::relu(fc1_->forward(x.reshape({-1, 7 * 7 * 64})));
  return fc2_->forward(x);
}

std::vector<Part> SimpleCNN::chain() {
  return {{"conv1", [this](const torch::Tensor& x) { return pool_relu(conv1_->forward(x)); }},
          {"conv2", [this](const torch::Tensor& x) { return pool_relu(conv2_->forward(x)); }},
          {"fc1",
           [this](const torch::Tensor& x) {
             return torch::relu(fc1_->forward(x.reshape({-1, 7 * 7 * 64})));
           }},
          {"fc2", [this](const torch::Tensor& x) { return fc2_->forward(x); }}};
}

LOCKSTEP_MODEL(simple_cnn, .help = "two convolutions, two linear layers: the workshop's, for MNIST",
               .make = made<SimpleCNN>, .input_shape = {1, 28, 28}, .classes = 10)

}  // namespace lockstep
