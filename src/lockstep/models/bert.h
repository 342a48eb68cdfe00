#pragma once
// BERT with a classifier, with the same parameter names and the same results, bit for bit, as transformers'
// BertForSequenceClassification.

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/table.h"
#include "lockstep/models/layers.h"
#include "lockstep/models/net.h"

namespace lockstep {

// One layer of BERT's encoder, of layers that ranks may share: attention by heads, then two linear layers.

/// The sizes of an encoder layer, and its dropout rates.
struct BertShape {
  int64_t width = 64;                            ///< the size of a token's vector
  int64_t heads = 4;                             ///< attention heads, each of size width / heads
  int64_t intermediate = 256;                    ///< size between the two linear layers
  double dropout = 0;                            ///< for the attention weights, and after both sublayers
  double norm_eps = 1e-12;                       ///< epsilon of layer normalization
  std::optional<double> attention_dropout = {};  ///< for the attention weights, if different
  std::string activation = "gelu";               ///< between the two linear layers: a value of hidden_act
  bool fused_attention = false;  ///< use scaled_dot_product_attention; only for layers that are not split
};

class BertAttention;

/// An encoder layer: attention.*, intermediate.dense, output.dense, output.LayerNorm. Throws InputError if
/// the width cannot be divided by the heads, or the heads by the ranks.
class BertLayer : public torch::nn::Module {
 public:
  BertLayer(const BertShape& shape, std::shared_ptr<const Layers> layers);
  /// Takes and returns this rank's tokens, [n, tokens, width]. `mask`: [n, 1, 1 or all tokens, all tokens],
  /// or undefined. It is added to the scores; for fused attention it is false for hidden tokens.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& mask = {});

 private:
  BertShape shape_;
  std::shared_ptr<const Layers> layers_;
  at::Tensor (*activation_)(const at::Tensor&);
  std::shared_ptr<BertAttention> attention_;
  Layer intermediate_, dense_, norm_;
};

// What BERT is made of, by the names of Hugging Face's config.json.

/// A BERT model's configuration. The defaults are BERT-base, as in transformers' BertConfig.
struct BertConfig {
  int64_t vocab_size = 30522;
  int64_t hidden_size = 768;
  int64_t num_hidden_layers = 12;
  int64_t num_attention_heads = 12;
  int64_t intermediate_size = 3072;
  int64_t max_position_embeddings = 512;
  int64_t type_vocab_size = 2;
  int64_t pad_token_id = 0;  ///< -1 = none
  std::string hidden_act = "gelu";
  double hidden_dropout_prob = 0.1;
  double attention_probs_dropout_prob = 0.1;
  std::optional<double> classifier_dropout = {};  ///< unset = hidden_dropout_prob
  double initializer_range = 0.02;
  double layer_norm_eps = 1e-12;
};

/// Returns the supported values of hidden_act.
std::vector<std::string> bert_activations();

/// Reads a folder's config.json. Throws InputError if it is missing, is not JSON, describes another
/// architecture, or has invalid values.
BertConfig read_bert_config(const std::string& folder);

/// Reads the class names (id2label) from a folder's config.json, in order; empty if there are none.
std::vector<std::string> read_bert_labels(const std::string& folder);

/// Applies model.options to `config`. Throws InputError for an invalid value.
BertConfig with_options(BertConfig config, const RowOptions& options);

class BertModel;

/// Takes text as one tensor, int64 [n, 3, tokens]: input_ids, token_type_ids, attention_mask. Returns logits,
/// [n, classes].
class BertForSequenceClassification : public Net {
 public:
  /// Leaves the parameters uninitialized: call draw() or read_bert_weights() next.
  BertForSequenceClassification(const BertConfig& config, int64_t classes);
  /// Throws InputError if the input has another type or shape, or more tokens than the config allows.
  at::Tensor forward(const at::Tensor& input) override;
  /// Checks the input as forward() does, and whether it contains padding.
  void prefetch(const at::Tensor& input, const at::Tensor& on_host) override;
  /// Initializes all parameters as transformers does after torch.manual_seed.
  void draw();
  /// The same for some modules only ("classifier", "bert.pooler"), like from_pretrained if a file lacks them.
  void draw(const std::vector<std::string>& modules);
  /// Deprecated.
  [[deprecated("use draw")]] void draw_anew(const std::vector<std::string>& modules) { draw(modules); }
  /// Recomputes each encoder layer's activations in backward: same results bit for bit, less memory.
  void use_checkpointing(bool on);
  /// Multiplies the logits by `factor` and adds `shift`, by changing the last layer's parameters.
  void scale_logits(double factor, double shift);
  /// Sets a message to log at the first forward() in training mode.
  void set_training_note(std::string note) { note_ = std::move(note); }
  /// Deprecated.
  [[deprecated("use set_training_note")]] void say_when_learning(std::string note) {
    note_ = std::move(note);
  }
  /// The model's configuration.
  const BertConfig& config() const { return config_; }

 private:
  /// What prefetch() found about one input.
  struct PrefetchResult {
    c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl> input;
    bool all_present;
  };
  void check(const at::Tensor& input) const;

  BertConfig config_;
  std::shared_ptr<BertModel> bert_;
  Layer classifier_;
  std::string note_;
  std::optional<PrefetchResult> prefetched_;  // for the next forward
};

}  // namespace lockstep
