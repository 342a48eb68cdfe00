#include "lockstep/models/layers.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

namespace lockstep {
namespace {

std::shared_ptr<const Layers>& in_use() {
  thread_local std::shared_ptr<const Layers> layers = std::make_shared<Layers>();
  return layers;
}

}  // namespace

Layer Layers::linear(int64_t in, int64_t out, LinearPlace) const {
  return Layer(torch::nn::Linear(in, out));
}

Layer Layers::embedding(int64_t count, int64_t width) const {
  return Layer(torch::nn::Embedding(count, width));
}

Layer Layers::norm(int64_t width, double eps) const {
  return Layer(torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}).eps(eps)));
}

int64_t Layers::own(int64_t count, const std::string&) const {
  return count;
}

at::Tensor Layers::dropout(const at::Tensor& x, double p, bool training, Shared) const {
  return at::dropout(x, p, training);
}

LayersGuard::LayersGuard(std::shared_ptr<const Layers> layers)
    : before_(std::exchange(in_use(), std::move(layers))) {}

LayersGuard::~LayersGuard() {
  in_use() = std::move(before_);
}

std::shared_ptr<const Layers> LayersGuard::current() {
  return in_use();
}

}  // namespace lockstep
