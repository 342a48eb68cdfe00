#pragma once
// BERT with a classifier, as transformers' BertForSequenceClassification: its names, its arithmetic, its
// bits.

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

class BertAttention;

/// A whole encoder layer: attention.*, intermediate.dense, output.dense, output.LayerNorm. InputError if the
/// heads do not divide the width, or the ranks cannot share them.
class BertLayer : public torch::nn::Module {
 public:
  BertLayer(const BertShape& shape, std::shared_ptr<const Layers> layers);
  /// This rank's tokens, [n, tokens, width], to the same. `mask` is added to the scores; fused attention
  /// takes one that is false where a token is hidden. [n, 1, 1 or all tokens, all tokens], or undefined.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& mask = {});

 private:
  BertShape shape_;
  std::shared_ptr<const Layers> layers_;
  at::Tensor (*activation_)(const at::Tensor&);
  std::shared_ptr<BertAttention> attention_;
  Layer intermediate_, dense_, norm_;
};

// What BERT is made of, by the names of Hugging Face's config.json.

/// BERT-base unless said otherwise, as transformers' BertConfig is.
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
  std::optional<double> classifier_dropout = {};  ///< hidden_dropout_prob where there is none
  double initializer_range = 0.02;
  double layer_norm_eps = 1e-12;
};

/// What hidden_act may be.
std::vector<std::string> bert_activations();

/// From a folder's config.json. InputError where it is missing, no JSON, of another architecture, or says
/// what cannot be.
BertConfig read_bert_config(const std::string& folder);

/// The classes' names in a folder's config.json (id2label), in order; none where it does not say.
std::vector<std::string> read_bert_labels(const std::string& folder);

/// `config` with what model.options say otherwise. InputError for what cannot be.
BertConfig with_options(BertConfig config, const RowOptions& options);

class BertModel;

/// Takes text as one tensor, int64 [n, 3, tokens]: input_ids, token_type_ids, attention_mask; gives logits
/// [n, classes].
class BertForSequenceClassification : public Net {
 public:
  /// Its parameters are not drawn: draw(), or read_bert_weights().
  BertForSequenceClassification(const BertConfig& config, int64_t classes);
  /// InputError for what is no such text, or does not fit the config.
  at::Tensor forward(const at::Tensor& input) override;
  /// Checks as forward does, and finds out whether a token is missing.
  void prefetch(const at::Tensor& input, const at::Tensor& on_host) override;
  /// All parameters, as transformers draws them after torch.manual_seed.
  void draw();
  /// Those of some modules ("classifier", "bert.pooler"), as its from_pretrained does for what a file lacks.
  void draw_anew(const std::vector<std::string>& modules);
  /// From now on backward computes each encoder layer's activations again: the same bits, less memory.
  void use_checkpointing(bool on);
  /// From now on its logits are multiplied by `factor`, then shifted: the last layer takes that in.
  void scale_logits(double factor, double shift);
  /// A line to log at the first forward in training: some models are only made to look at.
  void say_when_learning(std::string note) { note_ = std::move(note); }
  /// What it was made of.
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
