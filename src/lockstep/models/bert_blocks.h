#pragma once
// One layer of BERT's encoder, of layers that ranks may share: attention by heads, then two linear layers.

#include <torch/nn/module.h>

#include <memory>
#include <optional>
#include <string>

#include "lockstep/models/layers.h"

namespace lockstep {

/// The widths of an encoder layer, and what it drops out.
struct BertShape {
  int64_t width = 64;                            ///< of a token
  int64_t heads = 4;                             ///< of attention, each width / heads wide
  int64_t intermediate = 256;                    ///< between the two linear layers
  double dropout = 0;                            ///< of attention's weights, and of what each half gives
  double norm_eps = 1e-12;                       ///< BERT's own
  std::optional<double> attention_dropout = {};  ///< of attention's weights, where it is another
  std::string activation = "gelu";               ///< between the two linear layers, as hidden_act names it
  bool fused_attention = false;  ///< scaled_dot_product_attention's; for layers that no ranks share
};

/// Each token looks at all tokens, and is added to and normalised. Named like Hugging Face's: self.query,
/// self.key, self.value, output.dense, output.LayerNorm.
class BertAttention : public torch::nn::Module {
 public:
  /// InputError where the heads do not divide the width, or do not split.
  BertAttention(const BertShape& shape, std::shared_ptr<const Layers> layers);
  /// This rank's tokens, [n, tokens, width], to the same. `mask` is added to the scores, or where it is false
  /// nothing is looked at (fused attention's); [n, 1, 1 or all tokens, all tokens], or undefined.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& mask = {});

 private:
  at::Tensor heads_of(Layer& layer, const at::Tensor& tokens);
  at::Tensor look(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  const at::Tensor& mask) const;

  BertShape shape_;
  std::shared_ptr<const Layers> layers_;
  int64_t own_heads_;
  Layer query_, key_, value_, dense_, norm_;
};

/// A whole encoder layer: attention.*, intermediate.dense, output.dense, output.LayerNorm.
class BertLayer : public torch::nn::Module {
 public:
  BertLayer(const BertShape& shape, std::shared_ptr<const Layers> layers);
  /// As BertAttention's.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& mask = {});

 private:
  BertShape shape_;
  std::shared_ptr<const Layers> layers_;
  at::Tensor (*activation_)(const at::Tensor&);
  std::shared_ptr<BertAttention> attention_;
  Layer intermediate_, dense_, norm_;
};

}  // namespace lockstep
