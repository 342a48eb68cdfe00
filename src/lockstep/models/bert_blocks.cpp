#include "lockstep/models/bert_blocks.h"

#include <ATen/ATen.h>

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/models/activations.h"

namespace lockstep {
namespace {

// Names with a dot of their own: a module between for each part.
void add(torch::nn::Module& to, const std::string& part, const std::string& name, const Layer& layer) {
  const auto children = to.named_children();
  const auto* there = children.find(part);
  const auto module = there ? *there : to.register_module(part, std::make_shared<torch::nn::Module>(part));
  module->register_module(name, layer.ptr());
}

int64_t head_width(const BertShape& shape) {
  if (shape.heads > 0 && shape.width % shape.heads == 0) return shape.width / shape.heads;
  throw InputError(format("{} heads do not divide a width of {}", shape.heads, shape.width),
                   "model.options.heads", "take a width that is a multiple of the heads");
}

models::Activation activation_named(const std::string& name) {
  if (const auto activation = models::find_activation(name)) return activation;
  throw InputError(format("there is no activation {}", base::printable(name)), "model.options.hidden_act",
                   "take one of " + base::join(models::activation_names(), ", "));
}

}  // namespace

BertAttention::BertAttention(const BertShape& shape, std::shared_ptr<const Layers> layers)
    : shape_(shape), layers_(std::move(layers)) {
  head_width(shape);
  own_heads_ = layers_->own(shape.heads, "heads of attention");
  const int64_t width = shape.width;
  const LinearPlace into = {.split = Split::outputs, .entered = true};
  add(*this, "self", "query", query_ = layers_->linear(width, width, into));
  add(*this, "self", "key", key_ = layers_->linear(width, width, into));
  add(*this, "self", "value", value_ = layers_->linear(width, width, into));
  add(*this, "output", "dense",
      dense_ = layers_->linear(width, width, {.split = Split::inputs, .tokens = true}));
  add(*this, "output", "LayerNorm", norm_ = layers_->norm(width, shape.norm_eps));
}

// [n, tokens, heads * width] to [n, heads, tokens, width]
at::Tensor BertAttention::heads_of(Layer& layer, const at::Tensor& tokens) {
  const auto all = layer.forward(tokens);
  return all.view({all.size(0), all.size(1), own_heads_, -1}).transpose(1, 2);
}

// Of each head: [n, heads, tokens, width].
at::Tensor BertAttention::look(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                               const at::Tensor& mask) const {
  const double dropout = shape_.attention_dropout.value_or(shape_.dropout);
  const auto width = static_cast<double>(query.size(-1));
  if (shape_.fused_attention) {
    return at::scaled_dot_product_attention(query, key, value,
                                            mask.defined() ? std::optional(mask) : std::nullopt,
                                            is_training() ? dropout : 0.0, /*is_causal=*/false,
                                            /*scale=*/std::pow(width, -0.5));
  }
  auto scores = at::matmul(query, key.transpose(-1, -2)) / std::sqrt(width);
  if (mask.defined()) scores = scores + mask;
  return at::matmul(layers_->dropout(at::softmax(scores, -1), dropout, is_training(), Shared::heads), value);
}

at::Tensor BertAttention::forward(const at::Tensor& tokens, const at::Tensor& mask) {
  const auto all = layers_->enter(tokens);
  const auto query = heads_of(query_, all), key = heads_of(key_, all), value = heads_of(value_, all);
  const auto seen = look(query, key, value, mask).transpose(1, 2).flatten(2);
  const auto out = layers_->dropout(dense_.forward(seen), shape_.dropout, is_training(), Shared::tokens);
  return norm_.forward(out + tokens);
}

BertLayer::BertLayer(const BertShape& shape, std::shared_ptr<const Layers> layers)
    : shape_(shape), layers_(std::move(layers)), activation_(activation_named(shape.activation)) {
  attention_ = register_module("attention", std::make_shared<BertAttention>(shape, layers_));
  const LinearPlace into = {.split = Split::outputs, .entered = true};
  const LinearPlace out_of = {.split = Split::inputs, .tokens = true};
  add(*this, "intermediate", "dense", intermediate_ = layers_->linear(shape.width, shape.intermediate, into));
  add(*this, "output", "dense", dense_ = layers_->linear(shape.intermediate, shape.width, out_of));
  add(*this, "output", "LayerNorm", norm_ = layers_->norm(shape.width, shape.norm_eps));
}

at::Tensor BertLayer::forward(const at::Tensor& tokens, const at::Tensor& mask) {
  const auto attended = attention_->forward(tokens, mask);
  const auto wide = activation_(intermediate_.forward(layers_->enter(attended)));
  const auto out = layers_->dropout(dense_.forward(wide), shape_.dropout, is_training(), Shared::tokens);
  return norm_.forward(out + attended);
}

}  // namespace lockstep
