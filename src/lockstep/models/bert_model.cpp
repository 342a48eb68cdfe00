// The row `bert` of the table of models: from a Hugging Face folder, or drawn.
#include "lockstep/base/error.h"
#include "lockstep/base/memory.h"
#include "lockstep/base/paths.h"
#include "lockstep/models/bert.h"
#include "lockstep/models/bert_weights.h"
#include "lockstep/models/model.h"

namespace lockstep {
namespace {

void check_text_input(const std::vector<int64_t>& shape) {
  if (shape.size() == 2 && shape[0] == 3) return;
  throw InputError("the model bert takes text, and the data is none", "model.name",
                   "take a task of text, or another model");
}

std::shared_ptr<Net> make_bert(const WantedModel& wanted) {
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
                   "BERT with a classifier, for text; `path` is a Hugging Face folder, and where it is "
                   "empty the weights are random; its `options` are config.json's, and new_classifier",
               .reads = {"path", "checkpointing", "options.vocab_size", "options.hidden_size",
                         "options.num_hidden_layers", "options.num_attention_heads",
                         "options.intermediate_size", "options.max_position_embeddings",
                         "options.type_vocab_size", "options.pad_token_id", "options.hidden_act",
                         "options.hidden_dropout_prob", "options.attention_probs_dropout_prob",
                         "options.classifier_dropout", "options.initializer_range", "options.layer_norm_eps",
                         "options.new_classifier"},
               .make = make_bert)

}  // namespace lockstep
