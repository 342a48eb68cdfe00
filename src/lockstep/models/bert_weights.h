#pragma once
// BERT's weights from a Hugging Face folder.

#include <string>

#include "lockstep/models/bert.h"

namespace lockstep {

/// Reads the folder's model.safetensors or pytorch_model.bin, of a whole classifier or of a base model
/// alone. What the file lacks of the pooler and the classifier is drawn, and the model says so when it
/// learns; `new_classifier`: the classifier is drawn in any case. InputError where there is no such file, it
/// is damaged, or of another model.
void read_bert_weights(BertForSequenceClassification& net, const std::string& folder, bool new_classifier);

}  // namespace lockstep
