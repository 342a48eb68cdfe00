#pragma once
// BERT as a Hugging Face folder, which transformers loads.

#include <string>
#include <vector>

#include "lockstep/models/bert.h"

namespace lockstep {

/// What is in the folder beside the weights.
struct BertFolder {
  std::vector<std::string> labels;  ///< the classes' names; of a regression what its number is
  bool regression = false;
  std::string pretrained =
      {};  ///< the folder that training began with: what else its config.json says is kept
  std::string tokenizer = {};  ///< the folder whose vocab.txt and tokenizer's files are copied
};

/// Writes config.json, model.safetensors and the tokenizer's files, whole or not at all. InputError where
/// `path` is there and not an empty folder, or the labels are not as many as the model's classes.
void write_bert_folder(const BertForSequenceClassification& net, const BertFolder& folder,
                       const std::string& path);

// BERT's weights from a Hugging Face folder.

/// Reads the folder's model.safetensors or pytorch_model.bin, of a whole classifier or of a base model
/// alone. What the file lacks of the pooler and the classifier is drawn, and the model says so when it
/// learns; `new_classifier`: the classifier is drawn in any case. InputError where there is no such file, it
/// is damaged, or of another model.
void read_bert_weights(BertForSequenceClassification& net, const std::string& folder, bool new_classifier);

}  // namespace lockstep
