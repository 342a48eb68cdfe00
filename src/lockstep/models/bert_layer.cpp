#include "lockstep/models/bert_layer.h"

#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/models/model.h"

namespace lockstep {

BertLayerNet::BertLayerNet(const std::vector<int64_t>& input_shape, int64_t classes, const BertShape& shape,
                           std::shared_ptr<const Layers> layers)
    : dropout_(shape.dropout), layers_(std::move(layers)) {
  if (input_shape.size() != 3) {
    throw InputError(format("the model bert_layer takes images, but a sample has {} numbers",
                            input_shape.empty() ? 0 : input_shape[0]),
                     "model.name", "use mlp, or a task with images");
  }
  const int64_t rows = input_shape[1], numbers = input_shape[0] * input_shape[2];
  embed_ = layers_->linear(numbers, shape.width);
  register_module("embed", embed_.ptr());
  position_ = layers_->embedding(rows, shape.width);
  register_module("position", position_.ptr());
  layer_ = register_module("layer", std::make_shared<BertLayer>(shape, layers_));
  classifier_ = layers_->linear(shape.width, classes);
  register_module("classifier", classifier_.ptr());
}

at::Tensor BertLayerNet::forward(const at::Tensor& input) {
  const auto rows = input.transpose(1, 2).flatten(2);
  const auto places = at::arange(rows.size(1), rows.options().dtype(at::kLong));
  const auto embedded = embed_.forward(rows);
  const auto tokens = embedded + position_.forward(places);
  const auto dropped = layers_->dropout(tokens, dropout_, is_training(), Shared::nothing);
  const auto seen = layers_->all_tokens(layer_->forward(layers_->own_tokens(dropped)));
  return classifier_.forward(seen.mean(1));
}

namespace {

std::shared_ptr<Net> make_bert_layer(const ModelRequest& wanted) {
  const auto& options = wanted.settings.options;
  const BertShape usual;
  const BertShape shape = {.width = option(options, "width", usual.width),
                           .heads = option(options, "heads", usual.heads),
                           .intermediate = option(options, "intermediate", usual.intermediate),
                           .dropout = option(options, "dropout", usual.dropout)};
  if (shape.width < 1 || shape.intermediate < 1 || shape.dropout < 0 || shape.dropout >= 1) {
    throw InputError("bert_layer needs widths of at least 1, and a dropout from 0 to below 1",
                     "model.options", "omit options that you are not sure of: each has a default");
  }
  return std::make_shared<BertLayerNet>(wanted.input_shape, wanted.classes, shape, wanted.layers);
}

}  // namespace

LOCKSTEP_MODEL(bert_layer,
               .help =
                   "one layer of BERT on images, one token per row of pixels; its `options` are width (64), "
                   "heads (4), intermediate (256) and dropout (0)",
               .reads = {"options.width", "options.heads", "options.intermediate", "options.dropout"},
               .make = make_bert_layer, .splits = true)

}  // namespace lockstep
