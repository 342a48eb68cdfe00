#pragma once
// What BERT is made of, by the names of Hugging Face's config.json.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/table.h"

namespace lockstep {

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

/// From a folder's config.json. InputError where it is missing, no JSON, of another architecture, or says
/// what cannot be.
BertConfig read_bert_config(const std::string& folder);

/// The classes' names in a folder's config.json (id2label), in order; none where it does not say.
std::vector<std::string> read_bert_labels(const std::string& folder);

/// `config` with what model.options say otherwise. InputError for what cannot be.
BertConfig with_options(BertConfig config, const RowOptions& options);

}  // namespace lockstep
