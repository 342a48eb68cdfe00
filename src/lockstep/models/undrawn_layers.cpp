#include "lockstep/models/undrawn_layers.h"

#include <ATen/ATen.h>

namespace lockstep::models {

UndrawnLinear::UndrawnLinear(int64_t in, int64_t out)
    : weight(register_parameter("weight", at::empty({out, in}))),
      bias(register_parameter("bias", at::empty({out}))) {}

at::Tensor UndrawnLinear::forward(const at::Tensor& input) {
  return at::linear(input, weight, bias);
}

UndrawnEmbedding::UndrawnEmbedding(int64_t count, int64_t width, std::optional<int64_t> padding)
    : padding(padding), weight(register_parameter("weight", at::empty({count, width}))) {}

at::Tensor UndrawnEmbedding::forward(const at::Tensor& numbers) {
  return at::embedding(weight, numbers, padding.value_or(-1));
}

Layer UndrawnLayers::linear(int64_t in, int64_t out, LinearPlace) const {
  return Layer(std::make_shared<UndrawnLinear>(in, out));
}

Layer UndrawnLayers::embedding(int64_t count, int64_t width) const {
  return embedding(count, width, std::nullopt);
}

Layer UndrawnLayers::embedding(int64_t count, int64_t width, std::optional<int64_t> padding) {
  return Layer(std::make_shared<UndrawnEmbedding>(count, width, padding));
}

}  // namespace lockstep::models
