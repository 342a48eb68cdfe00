#pragma once
// A BERT model as a Hugging Face folder, which transformers can load.

#include <string>
#include <vector>

#include "lockstep/models/bert.h"

namespace lockstep {

/// The content of the folder besides the weights.
struct BertFolder {
  std::vector<std::string> labels;  ///< class names; for a regression, the name of the predicted value
  bool regression = false;
  std::string pretrained =
      {};  ///< the folder that training started from; other keys of its config.json are copied
  std::string tokenizer = {};  ///< the folder from which vocab.txt and other tokenizer files are copied
};

/// Writes config.json, model.safetensors and the tokenizer files atomically. Throws InputError if `path`
/// exists and is not an empty folder, or if the number of labels is not the model's number of classes.
void write_bert_folder(const BertForSequenceClassification& net, const BertFolder& folder,
                       const std::string& path);

// BERT's weights from a Hugging Face folder.

/// Reads model.safetensors or pytorch_model.bin from the folder, saved with or without a classifier.
/// Initializes missing pooler and classifier parameters and logs this at the first training step; with
/// `new_classifier`, always initializes the classifier. Throws InputError if the file is missing, is damaged,
/// or belongs to another model.
void read_bert_weights(BertForSequenceClassification& net, const std::string& folder, bool new_classifier);

}  // namespace lockstep
