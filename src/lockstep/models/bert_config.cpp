#include "lockstep/models/bert_config.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "lockstep/models/activations.h"
#include "lockstep/models/bert_fields.h"

namespace lockstep {
namespace {

using models::BertField;
using models::kBertFields;
using models::kBertFolder;
using models::kPadding;
namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kLargestFile = size_t{16} << 20;
constexpr const char* kOptions = "leave out what you are not sure of: each has BERT-base's default";

/// What may be wrong, said in one way whether a folder or the options say it.
struct Place {
  std::string where;
  const char* hint;
  [[noreturn]] void refuse(const std::string& what) const { throw InputError(what, where, hint); }
};

/// Takes a member's value from config.json.
struct FromJson {
  BertConfig& config;
  const BertField& field;
  const Json& value;
  const Place& place;

  [[noreturn]] void refuse(const char* wanted) const {
    place.refuse(format("{} is {}, and must be {}", field.name, base::printable(value.dump()), wanted));
  }
  void operator()(int64_t BertConfig::*member) const {
    if (!value.is_number_integer()) refuse("a whole number");
    config.*member = value.get<int64_t>();
  }
  void operator()(double BertConfig::*member) const {
    if (!value.is_number()) refuse("a number");
    config.*member = value.get<double>();
  }
  void operator()(std::optional<double> BertConfig::*member) const {
    if (!value.is_number()) refuse("a number");
    config.*member = value.get<double>();
  }
  void operator()(std::string BertConfig::*member) const {
    if (!value.is_string()) refuse("a text");
    config.*member = value.get<std::string>();
  }
};

/// The same from model.options.
struct FromOptions {
  BertConfig& config;
  const BertField& field;
  const RowOptions& options;

  template <class T>
  void operator()(T BertConfig::*member) const {
    config.*member = option(options, field.name, config.*member);
  }
  void operator()(std::optional<double> BertConfig::*member) const {
    config.*member = option(options, field.name, 0.0);
  }
};

void check_sizes(const BertConfig& config, const Place& place) {
  for (const auto& field : kBertFields) {
    const auto* member = std::get_if<int64_t BertConfig::*>(&field.member);
    if (!member) continue;
    const int64_t value = config.**member;
    if (value < field.least || value > field.most)
      place.refuse(format("{} is {}, and must be from {} to {}", field.name, value, field.least, field.most));
  }
  if (config.hidden_size % config.num_attention_heads != 0)
    place.refuse(format("hidden_size is {}, which is no multiple of num_attention_heads, {}",
                        config.hidden_size, config.num_attention_heads));
  if (config.pad_token_id >= config.vocab_size)
    place.refuse(format("{} is {}, and vocab_size {}", kPadding, config.pad_token_id, config.vocab_size));
}

void check_shares(const BertConfig& config, const Place& place) {
  const std::pair<const char*, double> dropouts[] = {
      {"hidden_dropout_prob", config.hidden_dropout_prob},
      {"attention_probs_dropout_prob", config.attention_probs_dropout_prob},
      {"classifier_dropout", config.classifier_dropout.value_or(0)}};
  for (const auto& [name, value] : dropouts)
    if (!(value >= 0 && value < 1))
      place.refuse(format("{} is {}, and must be from 0 to below 1", name, value));
  if (!(config.layer_norm_eps > 0)) place.refuse(format("layer_norm_eps is {}", config.layer_norm_eps));
  if (!(config.initializer_range > 0))
    place.refuse(format("initializer_range is {}, and must be above 0", config.initializer_range));
}

void check_config(const BertConfig& config, const Place& place) {
  check_sizes(config, place);
  check_shares(config, place);
  if (models::find_activation(config.hidden_act)) return;
  place.refuse(format("hidden_act is {}; known are {}", base::printable(config.hidden_act),
                      base::join(models::activation_names(), ", ")));
}

// Named like BERT's or not, the weights of another architecture would be taken wrongly.
void require_bert(const Json& json, const Place& place) {
  const auto require = [&](const char* key, const Json& wanted) {
    const auto found = json.find(key);
    if (found == json.end() || found->is_null() || *found == wanted) return;
    place.refuse(
        format("{} is {}, and this model's is {}", key, base::printable(found->dump()), wanted.dump()));
  };
  require("model_type", "bert");
  require("position_embedding_type", "absolute");
  require("is_decoder", false);
  require("add_cross_attention", false);
  if (!json.contains("model_type") && !json.contains("vocab_size"))
    place.refuse("it names no model_type and no vocab_size: it is no model's");
}

Json read_json(const std::string& file, const Place& place) {
  if (!fs::exists(file)) place.refuse("the folder has no config.json");
  const auto json = base::parse_json(base::read_small_file(file, kLargestFile, "config.json"));
  if (!json.is_object()) place.refuse("config.json is not JSON, or no object, or nested too deeply");
  return json;
}

}  // namespace

BertConfig read_bert_config(const std::string& folder) {
  if (!fs::is_directory(folder))
    throw InputError("there is no such folder", base::printable(folder, 4096), kBertFolder);
  const std::string file = (fs::path(folder) / "config.json").string();
  const Place place{file, kBertFolder};
  const Json json = read_json(file, place);
  require_bert(json, place);
  BertConfig config;
  for (const auto& field : kBertFields) {
    const auto found = json.find(field.name);
    if (found == json.end()) continue;
    if (!found->is_null()) {
      std::visit(FromJson{config, field, *found, place}, field.member);
    } else if (field.least < 0) {
      config.pad_token_id = -1;
    }
  }
  check_config(config, place);
  return config;
}

std::vector<std::string> read_bert_labels(const std::string& folder) {
  const std::string file = (fs::path(folder) / "config.json").string();
  const Json json = read_json(file, {file, kBertFolder});
  std::vector<std::string> labels;
  const auto names = json.find("id2label");
  if (names == json.end() || !names->is_object()) return labels;
  for (size_t i = 0; i < names->size(); ++i) {
    const auto name = names->find(format("{}", i));
    if (name == names->end() || !name->is_string()) return {};
    labels.push_back(name->get<std::string>());
  }
  return labels;
}

BertConfig with_options(BertConfig config, const RowOptions& options) {
  for (const auto& field : kBertFields)
    if (options.count(field.name)) std::visit(FromOptions{config, field, options}, field.member);
  check_config(config, {"model.options", kOptions});
  return config;
}

}  // namespace lockstep
