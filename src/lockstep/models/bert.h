#pragma once
// BERT with a classifier, as transformers' BertForSequenceClassification: its names, its arithmetic, its
// bits.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/models/bert_blocks.h"
#include "lockstep/models/bert_config.h"
#include "lockstep/models/net.h"

namespace lockstep {

/// Embeddings, encoder layers and the pooler: what Hugging Face calls the base model. Its parameters are not
/// drawn.
class BertModel : public torch::nn::Module {
 public:
  explicit BertModel(const BertConfig& config);
  /// Numbers of tokens and of their types, [n, tokens], and where a token is; what the pooler gives,
  /// [n, hidden_size].
  /// `all_present`: whether every token is there; a device that holds `present` is waited for where it is
  /// not said.
  at::Tensor forward(const at::Tensor& tokens, const at::Tensor& types, const at::Tensor& present,
                     std::optional<bool> all_present = {});
  /// From now on backward computes each encoder layer's activations again.
  void use_checkpointing(bool on) { checkpointing_ = on; }

 private:
  at::Tensor embed(const at::Tensor& tokens, const at::Tensor& types);

  double dropout_;
  bool checkpointing_ = false;
  Layer word_, position_, type_, norm_, pooler_;
  std::vector<std::shared_ptr<BertLayer>> layers_;
};

/// Takes text as one tensor, int64 [n, 3, tokens]: input_ids, token_type_ids, attention_mask; gives logits
/// [n, classes].
class BertForSequenceClassification : public Net {
 public:
  /// Its parameters are not drawn: draw(), or read_bert_weights().
  BertForSequenceClassification(const BertConfig& config, int64_t classes);
  /// InputError for what is no such text, or does not fit the config.
  at::Tensor forward(const at::Tensor& input) override;
  /// InputError as forward's; and whether a token is missing.
  void foresee(const at::Tensor& input, const at::Tensor& on_host) override;
  /// All parameters, as transformers draws them after torch.manual_seed.
  void draw();
  /// Those of some modules ("classifier", "bert.pooler"), as its from_pretrained does for what a file lacks.
  void draw_anew(const std::vector<std::string>& modules);
  /// From now on backward computes each encoder layer's activations again: the same bits, less memory.
  void use_checkpointing(bool on) { bert_->use_checkpointing(on); }
  /// A line for the log, said by the model that learns: others are made to be tried alone.
  void say_when_learning(std::string note) { note_ = std::move(note); }
  /// What it was made of.
  const BertConfig& config() const { return config_; }

 private:
  using SeenInput = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  struct Foreseen {
    SeenInput input;
    bool all_present;
  };
  void check(const at::Tensor& input) const;
  std::optional<bool> foreseen_of(const at::Tensor& input);

  BertConfig config_;
  std::shared_ptr<BertModel> bert_;
  Layer classifier_;
  std::string note_;
  std::optional<Foreseen> foreseen_;  // of the next forward
};

}  // namespace lockstep
