#pragma once
// Whole layers for a model that loads its parameters or draws them in an order of its own: their memory is
// not written, and they compute as Python's torch.nn does, to the bit.

#include <torch/nn/module.h>

#include <optional>

#include "lockstep/models/layers.h"

namespace lockstep::models {

/// Python's nn.Linear; libtorch's own rounds a third dimension otherwise.
struct UndrawnLinear : torch::nn::Module {
  UndrawnLinear(int64_t in, int64_t out);
  /// [..., in] to [..., out].
  at::Tensor forward(const at::Tensor& input);

  at::Tensor weight, bias;
};

/// Python's nn.Embedding.
struct UndrawnEmbedding : torch::nn::Module {
  /// The row `padding` is zero, and learns nothing.
  UndrawnEmbedding(int64_t count, int64_t width, std::optional<int64_t> padding = std::nullopt);
  /// Numbers of any shape to vectors.
  at::Tensor forward(const at::Tensor& numbers);

  std::optional<int64_t> padding;
  at::Tensor weight;
};

/// Makes those two; norms begin at one and zero, and draw nothing.
class UndrawnLayers : public Layers {
 public:
  Layer linear(int64_t in, int64_t out, LinearPlace place = {}) const override;
  Layer embedding(int64_t count, int64_t width) const override;
  /// With a row for padding.
  static Layer embedding(int64_t count, int64_t width, std::optional<int64_t> padding);
};

}  // namespace lockstep::models
