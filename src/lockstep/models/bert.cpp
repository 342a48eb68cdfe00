#include "lockstep/models/bert.h"

#include <ATen/ATen.h>
#include <torch/utils.h>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/models/undrawn_layers.h"
#include "lockstep/recompute/checkpoint_activations.h"

namespace lockstep {
namespace {

using models::UndrawnEmbedding;
using models::UndrawnLayers;
using models::UndrawnLinear;

BertShape shape_of(const BertConfig& config) {
  return {.width = config.hidden_size,
          .heads = config.num_attention_heads,
          .intermediate = config.intermediate_size,
          .dropout = config.hidden_dropout_prob,
          .norm_eps = config.layer_norm_eps,
          .attention_dropout = config.attention_probs_dropout_prob,
          .activation = config.hidden_act,
          .fused_attention = true};
}

std::shared_ptr<torch::nn::Module> part(torch::nn::Module& of, const std::string& name) {
  return of.register_module(name, std::make_shared<torch::nn::Module>(name));
}

std::optional<int64_t> padding_of(const BertConfig& config) {
  return config.pad_token_id < 0 ? std::nullopt : std::optional(config.pad_token_id);
}

// What torch.nn draws for a layer that is made, before transformers draws it again: the generator goes on.
void draw_as_made(torch::nn::Module& module) {
  for (const auto& child : module.children()) draw_as_made(*child);
  if (auto* linear = dynamic_cast<UndrawnLinear*>(&module)) {
    linear->weight.uniform_();
    linear->bias.uniform_();
  }
  if (auto* embedding = dynamic_cast<UndrawnEmbedding*>(&module)) embedding->weight.normal_();
}

// transformers' _init_weights, children first.
void draw_as_bert(torch::nn::Module& module, double deviation) {
  for (const auto& child : module.children()) draw_as_bert(*child, deviation);
  if (auto* linear = dynamic_cast<UndrawnLinear*>(&module)) {
    linear->weight.normal_(0, deviation);
    linear->bias.zero_();
  }
  auto* embedding = dynamic_cast<UndrawnEmbedding*>(&module);
  if (!embedding) return;
  embedding->weight.normal_(0, deviation);
  if (embedding->padding) embedding->weight[*embedding->padding].zero_();
}

void check_numbers(const at::Tensor& numbers, int64_t count, const char* what, const char* key) {
  if (!numbers.is_cpu() || numbers.numel() == 0) return;  // a GPU would have to be waited for
  const auto [least, most] = numbers.aminmax();
  if (least.item<int64_t>() >= 0 && most.item<int64_t>() < count) return;
  throw InputError(
      format("{} {} is not among the model's {} ({})", what,
             least.item<int64_t>() < 0 ? least.item<int64_t>() : most.item<int64_t>(), count, key),
      "model", "take the vocabulary and the model of one folder");
}

}  // namespace

BertModel::BertModel(const BertConfig& config) : dropout_(config.hidden_dropout_prob) {
  const auto layers = std::make_shared<UndrawnLayers>();
  const int64_t width = config.hidden_size;
  const auto embeddings = part(*this, "embeddings");
  word_ = UndrawnLayers::embedding(config.vocab_size, width, padding_of(config));
  embeddings->register_module("word_embeddings", word_.ptr());
  position_ = layers->embedding(config.max_position_embeddings, width);
  embeddings->register_module("position_embeddings", position_.ptr());
  type_ = layers->embedding(config.type_vocab_size, width);
  embeddings->register_module("token_type_embeddings", type_.ptr());
  norm_ = layers->norm(width, config.layer_norm_eps);
  embeddings->register_module("LayerNorm", norm_.ptr());
  const auto list = part(*part(*this, "encoder"), "layer");
  for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
    layers_.push_back(std::make_shared<BertLayer>(shape_of(config), layers));
    list->register_module(format("{}", i), layers_.back());
  }
  pooler_ = layers->linear(width, width);
  part(*this, "pooler")->register_module("dense", pooler_.ptr());
}

at::Tensor BertModel::embed(const at::Tensor& tokens, const at::Tensor& types) {
  const auto places = at::arange(tokens.size(1), tokens.options()).unsqueeze(0);
  // in transformers' order: DDP's buckets follow the order in which gradients arrive
  const auto words = word_.forward(tokens);
  const auto kinds = type_.forward(types);
  const auto typed = words + kinds;
  const auto sum = typed + position_.forward(places);
  return at::dropout(norm_.forward(sum), dropout_, is_training());
}

at::Tensor BertModel::forward(const at::Tensor& tokens, const at::Tensor& types, const at::Tensor& present,
                              std::optional<bool> all_present) {
  auto x = embed(tokens, types);
  at::Tensor mask;  // none where no token is missing: attention then takes its quickest way
  if (!(all_present ? *all_present : present.all().item<bool>()))
    mask = present.unsqueeze(1).unsqueeze(1).expand({-1, -1, tokens.size(1), -1});
  for (const auto& layer : layers_)
    x = checkpointing_ ? checkpoint_activations(layer, x, mask) : layer->forward(x, mask);
  return at::tanh(pooler_.forward(x.select(1, 0)));
}

BertForSequenceClassification::BertForSequenceClassification(const BertConfig& config, int64_t classes)
    : config_(config) {
  bert_ = register_module("bert", std::make_shared<BertModel>(config));
  classifier_ = UndrawnLayers().linear(config.hidden_size, classes);
  register_module("classifier", classifier_.ptr());
}

void BertForSequenceClassification::check(const at::Tensor& input) const {
  if (input.dim() != 3 || input.size(1) != 3 || input.scalar_type() != at::kLong)
    throw InputError(format("the model bert takes text, int64 [n, 3, tokens], and got {} {}",
                            c10::toString(input.scalar_type()), c10::str(input.sizes())),
                     "model.name", "take another model, or a task of text");
  if (input.size(2) > config_.max_position_embeddings)
    throw InputError(format("a text has {} tokens, and the model knows {} places", input.size(2),
                            config_.max_position_embeddings),
                     "task.max_length", format("give {} or less", config_.max_position_embeddings));
  check_numbers(input.select(1, 0), config_.vocab_size, "token", "vocab_size");
  check_numbers(input.select(1, 1), config_.type_vocab_size, "token type", "type_vocab_size");
}

void BertForSequenceClassification::foresee(const at::Tensor& input, const at::Tensor& on_host) {
  check(on_host);
  foreseen_ =
      Foreseen{SeenInput(input.getIntrusivePtr()), on_host.select(1, 2).to(at::kBool).all().item<bool>()};
}

// It was of that very tensor, and is used once.
std::optional<bool> BertForSequenceClassification::foreseen_of(const at::Tensor& input) {
  const auto foreseen = std::exchange(foreseen_, std::nullopt);
  if (!foreseen || foreseen->input.lock().get() != input.unsafeGetTensorImpl()) return std::nullopt;
  return foreseen->all_present;
}

at::Tensor BertForSequenceClassification::forward(const at::Tensor& input) {
  check(input);
  if (is_training() && !note_.empty()) log::info(std::exchange(note_, {}));
  const auto pooled = bert_->forward(input.select(1, 0), input.select(1, 1), input.select(1, 2).to(at::kBool),
                                     foreseen_of(input));
  const double dropout = config_.classifier_dropout.value_or(config_.hidden_dropout_prob);
  return classifier_.forward(at::dropout(pooled, dropout, is_training()));
}

void BertForSequenceClassification::draw() {
  const torch::NoGradGuard no_grad;
  for (torch::nn::Module* module : {static_cast<torch::nn::Module*>(bert_.get()), classifier_.ptr().get()}) {
    draw_as_made(*module);
    draw_as_bert(*module, config_.initializer_range);
  }
}

void BertForSequenceClassification::draw_anew(const std::vector<std::string>& modules) {
  const torch::NoGradGuard no_grad;
  for (const auto& child : named_modules()) {
    if (std::find(modules.begin(), modules.end(), child.key()) != modules.end())
      draw_as_bert(*child.value(), config_.initializer_range);
  }
}

}  // namespace lockstep
