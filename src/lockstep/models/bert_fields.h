#pragma once
// The keys of config.json that BertConfig has, and what to say where a folder is no model's.

#include <variant>

#include "lockstep/models/bert.h"

namespace lockstep::models {

struct BertField {
  const char* name;
  std::variant<int64_t BertConfig::*, double BertConfig::*, std::optional<double> BertConfig::*,
               std::string BertConfig::*>
      member;
  int64_t least = 1, most = int64_t{1} << 31;  // of whole numbers
};

inline constexpr const char* kBertFolder =
    "give the folder of a BERT model, as transformers' save_pretrained() writes it";

inline constexpr const char* kPadding = "pad_token_id";

inline constexpr BertField kBertFields[] = {
    {"vocab_size", &BertConfig::vocab_size},
    {"hidden_size", &BertConfig::hidden_size},
    {"num_hidden_layers", &BertConfig::num_hidden_layers, 1, 1000},
    {"num_attention_heads", &BertConfig::num_attention_heads},
    {"intermediate_size", &BertConfig::intermediate_size},
    {"max_position_embeddings", &BertConfig::max_position_embeddings},
    {"type_vocab_size", &BertConfig::type_vocab_size},
    {kPadding, &BertConfig::pad_token_id, -1},  // which is null in the file
    {"hidden_act", &BertConfig::hidden_act},
    {"hidden_dropout_prob", &BertConfig::hidden_dropout_prob},
    {"attention_probs_dropout_prob", &BertConfig::attention_probs_dropout_prob},
    {"classifier_dropout", &BertConfig::classifier_dropout},
    {"initializer_range", &BertConfig::initializer_range},
    {"layer_norm_eps", &BertConfig::layer_norm_eps},
};

}  // namespace lockstep::models
