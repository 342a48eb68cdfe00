#include "lockstep/models/bert.h"

#include <ATen/ATen.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/utils.h>

#include <cmath>
#include <numbers>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/memory.h"
#include "lockstep/base/paths.h"
#include "lockstep/base/text.h"
#include "lockstep/models/bert_folder.h"
#include "lockstep/models/layers.h"
#include "lockstep/models/model.h"
#include "lockstep/recompute/checkpoint_activations.h"

namespace lockstep {
namespace {

// Whole layers for a model that loads its parameters or draws them in an order of its own: their memory is
// not written, and they compute as Python's torch.nn does, to the bit.

// Python's nn.Linear; libtorch's own rounds a third dimension otherwise.
struct UndrawnLinear : torch::nn::Module {
  UndrawnLinear(int64_t in, int64_t out)
      : weight(register_parameter("weight", at::empty({out, in}))),
        bias(register_parameter("bias", at::empty({out}))) {}
  at::Tensor forward(const at::Tensor& input) { return at::linear(input, weight, bias); }

  at::Tensor weight, bias;
};

// Python's nn.Embedding. The row `padding` is zero, and learns nothing.
struct UndrawnEmbedding : torch::nn::Module {
  UndrawnEmbedding(int64_t count, int64_t width, std::optional<int64_t> padding)
      : padding(padding), weight(register_parameter("weight", at::empty({count, width}))) {}
  at::Tensor forward(const at::Tensor& numbers) {
    return at::embedding(weight, numbers, padding.value_or(-1));
  }

  std::optional<int64_t> padding;
  at::Tensor weight;
};

// Makes those two; norms begin at one and zero, and draw nothing.
class UndrawnLayers : public Layers {
 public:
  Layer linear(int64_t in, int64_t out, LinearPlace = {}) const override {
    return Layer(std::make_shared<UndrawnLinear>(in, out));
  }
  Layer embedding(int64_t count, int64_t width) const override {
    return embedding(count, width, std::nullopt);
  }
  static Layer embedding(int64_t count, int64_t width, std::optional<int64_t> padding) {
    return Layer(std::make_shared<UndrawnEmbedding>(count, width, padding));
  }
};

// What stands between BERT's two linear layers, by the names of Hugging Face's hidden_act.

using Activation = at::Tensor (*)(const at::Tensor&);

// The formulas are transformers' (activations.py), in their order of operations: gradients are summed in the
// reverse of it, and within one expression the compiler chooses the order.

at::Tensor gelu(const at::Tensor& x) {
  return at::gelu(x);
}

at::Tensor gelu_new(const at::Tensor& x) {
  const auto half = 0.5 * x;
  const auto cubic = 0.044715 * at::pow(x, 3.0);
  const auto bent = at::tanh(std::sqrt(2.0 / std::numbers::pi) * (x + cubic));
  return half * (1.0 + bent);
}

at::Tensor gelu_pytorch_tanh(const at::Tensor& x) {
  return at::gelu(x, "tanh");
}

constexpr std::pair<const char*, Activation> kActivations[] = {
    {"gelu", gelu},     {"gelu_new", gelu_new}, {"gelu_pytorch_tanh", gelu_pytorch_tanh},
    {"relu", at::relu}, {"silu", at::silu},     {"swish", at::silu},
    {"tanh", at::tanh},
};

Activation activation_named(const std::string& name) {
  for (const auto& [known, activation] : kActivations)
    if (name == known) return activation;
  throw InputError(format("unknown activation {}", base::printable(name)), "model.options.hidden_act",
                   "use one of " + base::join(bert_activations(), ", "));
}

// Names with a dot of their own: a module between for each part.
void add(torch::nn::Module& to, const std::string& part, const std::string& name, const Layer& layer) {
  const auto children = to.named_children();
  const auto* there = children.find(part);
  const auto module = there ? *there : to.register_module(part, std::make_shared<torch::nn::Module>(part));
  module->register_module(name, layer.ptr());
}

}  // namespace

std::vector<std::string> bert_activations() {
  std::vector<std::string> names;
  for (const auto& row : kActivations) names.emplace_back(row.first);
  return names;
}

/// Each token looks at all tokens, and is added to and normalized. Named like Hugging Face's: self.query,
/// self.key, self.value, output.dense, output.LayerNorm.
class BertAttention : public torch::nn::Module {
 public:
  BertAttention(const BertShape& shape, std::shared_ptr<const Layers> layers)
      : shape_(shape), layers_(std::move(layers)) {
    if (shape.heads < 1 || shape.width % shape.heads != 0)
      throw InputError(format("a width of {} cannot be split into {} heads", shape.width, shape.heads),
                       "model.options.heads", "set the width to a multiple of the number of heads");
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

  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& mask) {
    const auto all = layers_->enter(tokens);
    const auto query = heads_of(query_, all), key = heads_of(key_, all), value = heads_of(value_, all);
    const auto seen = look(query, key, value, mask).transpose(1, 2).flatten(2);
    const auto out = layers_->dropout(dense_.forward(seen), shape_.dropout, is_training(), Shared::tokens);
    return norm_.forward(out + tokens);
  }

 private:
  // [n, tokens, heads * width] to [n, heads, tokens, width]
  at::Tensor heads_of(Layer& layer, const at::Tensor& tokens) {
    const auto all = layer.forward(tokens);
    return all.view({all.size(0), all.size(1), own_heads_, -1}).transpose(1, 2);
  }

  // Of each head: [n, heads, tokens, width].
  at::Tensor look(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
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
    return at::matmul(layers_->dropout(at::softmax(scores, -1), dropout, is_training(), Shared::heads),
                      value);
  }

  BertShape shape_;
  std::shared_ptr<const Layers> layers_;
  int64_t own_heads_;
  Layer query_, key_, value_, dense_, norm_;
};

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

// The row `bert` of the table of models: from a Hugging Face folder, or drawn.

namespace {

void check_text_input(const std::vector<int64_t>& shape) {
  if (shape.size() == 2 && shape[0] == 3) return;
  throw InputError("the model bert needs text data", "model.name", "use a text task, or another model");
}

std::shared_ptr<Net> make_bert(const ModelRequest& wanted) {
  check_text_input(wanted.input_shape);
  const auto& settings = wanted.settings;
  const auto folder = base::find_path(settings.path);
  const auto usual = folder.empty() ? BertConfig() : read_bert_config(folder);
  const auto config = with_options(usual, settings.options);
  return base::with_memory_for("model.name: bert", [&] {
    auto net = std::make_shared<BertForSequenceClassification>(config, wanted.classes);
    net->use_checkpointing(settings.checkpointing);
    if (folder.empty()) {
      net->draw();
    } else {
      read_bert_weights(*net, folder, option(settings.options, "new_classifier", false));
    }
    return net;
  });
}

}  // namespace

LOCKSTEP_MODEL(bert,
               .help =
                   "BERT with a classifier, for text; `path` is a Hugging Face folder, random weights if "
                   "empty; its `options` are those of config.json, and new_classifier",
               .reads = {"path", "checkpointing", "options.vocab_size", "options.hidden_size",
                         "options.num_hidden_layers", "options.num_attention_heads",
                         "options.intermediate_size", "options.max_position_embeddings",
                         "options.type_vocab_size", "options.pad_token_id", "options.hidden_act",
                         "options.hidden_dropout_prob", "options.attention_probs_dropout_prob",
                         "options.classifier_dropout", "options.initializer_range", "options.layer_norm_eps",
                         "options.new_classifier"},
               .make = make_bert)

namespace {

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

// Draws what torch.nn draws for a new layer, so that the generator advances as in Python.
void init_as_torch(torch::nn::Module& module) {
  for (const auto& child : module.children()) init_as_torch(*child);
  if (auto* linear = dynamic_cast<UndrawnLinear*>(&module)) {
    linear->weight.uniform_();
    linear->bias.uniform_();
  }
  if (auto* embedding = dynamic_cast<UndrawnEmbedding*>(&module)) embedding->weight.normal_();
}

// transformers' _init_weights, children first.
void init_as_bert(torch::nn::Module& module, double deviation) {
  for (const auto& child : module.children()) init_as_bert(*child, deviation);
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
      "model", "use the vocabulary and the model of the same folder");
}

}  // namespace

/// Embeddings, encoder layers and the pooler: Hugging Face's base model. Its parameters are not drawn.
class BertModel : public torch::nn::Module {
 public:
  explicit BertModel(const BertConfig& config) : dropout_(config.hidden_dropout_prob) {
    const auto layers = std::make_shared<UndrawnLayers>();
    const int64_t width = config.hidden_size;
    word_ =
        UndrawnLayers::embedding(config.vocab_size, width,
                                 config.pad_token_id < 0 ? std::nullopt : std::optional(config.pad_token_id));
    add(*this, "embeddings", "word_embeddings", word_);
    add(*this, "embeddings", "position_embeddings",
        position_ = layers->embedding(config.max_position_embeddings, width));
    add(*this, "embeddings", "token_type_embeddings",
        type_ = layers->embedding(config.type_vocab_size, width));
    add(*this, "embeddings", "LayerNorm", norm_ = layers->norm(width, config.layer_norm_eps));
    const auto part = [](torch::nn::Module& of, const std::string& name) {
      return of.register_module(name, std::make_shared<torch::nn::Module>(name));
    };
    const auto list = part(*part(*this, "encoder"), "layer");
    for (int64_t i = 0; i < config.num_hidden_layers; ++i) {
      layers_.push_back(std::make_shared<BertLayer>(shape_of(config), layers));
      list->register_module(format("{}", i), layers_.back());
    }
    add(*this, "pooler", "dense", pooler_ = layers->linear(width, width));
  }

  /// Numbers of tokens and of their types, [n, tokens], and where a token is; what the pooler gives,
  /// [n, hidden_size]. `all_present` says whether no token is missing; without it a GPU has to be waited for.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& types, const at::Tensor& present,
                     std::optional<bool> all_present) {
    auto x = embed(tokens, types);
    at::Tensor mask;  // without one attention takes its quickest way
    if (!(all_present ? *all_present : present.all().item<bool>()))
      mask = present.unsqueeze(1).unsqueeze(1).expand({-1, -1, tokens.size(1), -1});
    for (const auto& layer : layers_)
      x = checkpointing_ ? checkpoint_activations(layer, x, mask) : layer->forward(x, mask);
    return at::tanh(pooler_.forward(x.select(1, 0)));
  }

  void use_checkpointing(bool on) { checkpointing_ = on; }

 private:
  at::Tensor embed(const at::Tensor& tokens, const at::Tensor& types) {
    const auto places = at::arange(tokens.size(1), tokens.options()).unsqueeze(0);
    // in transformers' order: DDP's buckets follow the order in which gradients arrive
    const auto words = word_.forward(tokens);
    const auto kinds = type_.forward(types);
    const auto typed = words + kinds;
    const auto sum = typed + position_.forward(places);
    return at::dropout(norm_.forward(sum), dropout_, is_training());
  }

  double dropout_;
  bool checkpointing_ = false;
  Layer word_, position_, type_, norm_, pooler_;
  std::vector<std::shared_ptr<BertLayer>> layers_;
};

BertForSequenceClassification::BertForSequenceClassification(const BertConfig& config, int64_t classes)
    : config_(config) {
  bert_ = register_module("bert", std::make_shared<BertModel>(config));
  classifier_ = UndrawnLayers().linear(config.hidden_size, classes);
  register_module("classifier", classifier_.ptr());
}

void BertForSequenceClassification::check(const at::Tensor& input) const {
  if (input.dim() != 3 || input.size(1) != 3 || input.scalar_type() != at::kLong)
    throw InputError(format("the model bert takes text, int64 [n, 3, tokens], but got {} {}",
                            c10::toString(input.scalar_type()), c10::str(input.sizes())),
                     "model.name", "use another model, or a text task");
  if (input.size(2) > config_.max_position_embeddings)
    throw InputError(format("a text has {} tokens, but the model takes at most {}", input.size(2),
                            config_.max_position_embeddings),
                     "task.max_length", format("give {} or less", config_.max_position_embeddings));
  check_numbers(input.select(1, 0), config_.vocab_size, "token", "vocab_size");
  check_numbers(input.select(1, 1), config_.type_vocab_size, "token type", "type_vocab_size");
}

void BertForSequenceClassification::use_checkpointing(bool on) {
  bert_->use_checkpointing(on);
}

void BertForSequenceClassification::prefetch(const at::Tensor& input, const at::Tensor& on_host) {
  check(on_host);
  prefetched_ = PrefetchResult{decltype(PrefetchResult::input)(input.getIntrusivePtr()),
                               on_host.select(1, 2).to(at::kBool).all().item<bool>()};
}

at::Tensor BertForSequenceClassification::forward(const at::Tensor& input) {
  check(input);
  if (is_training() && !note_.empty()) log::info(std::exchange(note_, {}));
  std::optional<bool> all_present;
  const auto prefetched = std::exchange(prefetched_, std::nullopt);
  if (prefetched && prefetched->input.lock().get() == input.unsafeGetTensorImpl())
    all_present = prefetched->all_present;
  const auto pooled =
      bert_->forward(input.select(1, 0), input.select(1, 1), input.select(1, 2).to(at::kBool), all_present);
  const double dropout = config_.classifier_dropout.value_or(config_.hidden_dropout_prob);
  return classifier_.forward(at::dropout(pooled, dropout, is_training()));
}

void BertForSequenceClassification::draw() {
  const torch::NoGradGuard no_grad;
  for (torch::nn::Module* module : {static_cast<torch::nn::Module*>(bert_.get()), classifier_.ptr().get()}) {
    init_as_torch(*module);
    init_as_bert(*module, config_.initializer_range);
  }
}

void BertForSequenceClassification::draw(const std::vector<std::string>& modules) {
  const torch::NoGradGuard no_grad;
  for (const auto& child : named_modules()) {
    if (std::find(modules.begin(), modules.end(), child.key()) != modules.end())
      init_as_bert(*child.value(), config_.initializer_range);
  }
}

void BertForSequenceClassification::scale_logits(double factor, double shift) {
  const torch::NoGradGuard no_grad;
  auto parameters = classifier_.ptr()->named_parameters();
  parameters["weight"].mul_(factor);
  parameters["bias"].mul_(factor).add_(shift);
}

}  // namespace lockstep
