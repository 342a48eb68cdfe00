#include "lockstep/models/mlp.h"

#include <torch/nn/modules/activation.h>

#include "lockstep/models/model.h"

namespace lockstep {

Mlp::Mlp(int64_t inputs, const std::vector<int64_t>& hidden, int64_t classes, const Layers& layers) {
  int64_t width = inputs;
  Split split = Split::outputs;
  for (int64_t next : hidden) {
    layers_->push_back(layers.linear(width, next, {.split = split}));
    layers_->push_back(torch::nn::ReLU());
    width = next;
    split = split == Split::outputs ? Split::inputs : Split::outputs;
  }
  layers_->push_back(layers.linear(width, classes, {.split = split == Split::inputs ? split : Split::none}));
  register_module("layers", layers_);
}

torch::Tensor Mlp::forward(const torch::Tensor& input) {
  const auto layers = dense_layers();
  auto x = input.flatten(1);
  if (layers.empty()) return layers_->forward(x);
  for (const auto& layer : layers) x = layer == layers.back() ? alone(*layer, x) : with_relu(*layer, x);
  return x;
}

// A Linear and the ReLU behind it; the last has none.
std::vector<Part> Mlp::chain() {
  std::vector<Part> parts;
  for (size_t i = 0; i < layers_->size(); i += 2) {
    const auto linear = layers_->ptr<torch::nn::LinearImpl>(i);
    const bool is_last = i + 1 == layers_->size();
    parts.push_back({"layers." + std::to_string(i), [linear, is_last](const torch::Tensor& input) {
                       const auto x = input.flatten(1);
                       return is_last ? alone(*linear, x) : with_relu(*linear, x);
                     }});
  }
  return parts;
}

// None where ranks share them.
DenseLayers Mlp::dense_layers() {
  DenseLayers dense;
  for (size_t i = 0; i < layers_->size(); i += 2) {
    const auto layer = std::dynamic_pointer_cast<torch::nn::LinearImpl>(layers_->ptr(i));
    if (!layer) return {};
    dense.push_back(layer);
  }
  return dense;
}

namespace {

std::shared_ptr<Net> make_mlp(const ModelRequest& wanted) {
  int64_t inputs = 1;
  for (const int64_t size : wanted.input_shape) inputs *= size;
  const auto& hidden = wanted.settings.hidden;
  return std::make_shared<Mlp>(inputs, hidden.empty() ? std::vector<int64_t>{64, 32} : hidden, wanted.classes,
                               *wanted.layers);
}

}  // namespace

LOCKSTEP_MODEL(mlp,
               .help = "linear layers with ReLU between them; `hidden` are their widths, 64 and 32 if empty",
               .reads = {"hidden"}, .make = make_mlp, .splits = true)

}  // namespace lockstep
