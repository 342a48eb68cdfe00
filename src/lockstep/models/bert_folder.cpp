#include "lockstep/models/bert_folder.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/files/whole_folder.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/checkpoint/state_dict.h"
#include "lockstep/models/bert_fields.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

constexpr size_t kLargestConfig = size_t{16} << 20;
constexpr const char* kOutput = "name a folder that is not there yet";
constexpr const char* kTokenizerFiles[] = {"vocab.txt", "tokenizer_config.json", "tokenizer.json",
                                           "special_tokens_map.json", "added_tokens.json"};
// What transformers would believe rather than the keys written here.
constexpr const char* kOutdated[] = {"num_labels",    "_num_labels",          "torch_dtype",
                                     "_name_or_path", "transformers_version", "quantization_config"};

struct ToJson {
  const BertConfig& config;

  OrderedJson operator()(std::optional<double> BertConfig::*member) const {
    return config.*member ? OrderedJson(*(config.*member)) : OrderedJson();
  }
  OrderedJson operator()(int64_t BertConfig::*member) const {
    return config.*member < 0 ? OrderedJson() : OrderedJson(config.*member);
  }
  template <class T>
  OrderedJson operator()(T BertConfig::*member) const {
    return config.*member;
  }
};

OrderedJson present_config(const std::string& pretrained) {
  const auto file = fs::path(pretrained) / "config.json";
  if (pretrained.empty() || !fs::exists(file)) return OrderedJson::object();
  auto json =
      base::parse_json<OrderedJson>(base::read_small_file(file.string(), kLargestConfig, "config.json"));
  if (!json.is_object())
    throw InputError("config.json is not JSON, or no object", file.string(), "put it right");
  for (const char* key : kOutdated) json.erase(key);
  return json;
}

std::string config_text(const BertConfig& config, const BertFolder& folder) {
  auto json = present_config(folder.pretrained);
  json["architectures"] = {"BertForSequenceClassification"};
  json["model_type"] = "bert";
  for (const auto& field : models::kBertFields) json[field.name] = std::visit(ToJson{config}, field.member);
  json["dtype"] = "float32";
  json["problem_type"] = folder.regression ? "regression" : "single_label_classification";
  json["id2label"] = json["label2id"] = OrderedJson::object();
  for (size_t i = 0; i < folder.labels.size(); ++i) {
    json["id2label"][format("{}", i)] = folder.labels[i];
    json["label2id"][folder.labels[i]] = i;
  }
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

void check_labels(const BertForSequenceClassification& net, const std::vector<std::string>& labels) {
  const auto classes = net.named_parameters()["classifier.bias"].size(0);
  if (classes == std::ssize(labels)) return;
  throw InputError(format("the model has {} classes, and {} names are given", classes, labels.size()),
                   "task.name", "take the config that the checkpoint was trained with");
}

void copy_tokenizer(const fs::path& from, const fs::path& to) {
  if (from.empty()) return;
  for (const char* name : kTokenizerFiles) {
    std::error_code failed;
    if (fs::exists(from / name)) fs::copy_file(from / name, to / name, failed);
    if (failed) throw Error("cannot copy the file: " + failed.message(), (from / name).string(), kOutput);
  }
}

}  // namespace

void write_bert_folder(const BertForSequenceClassification& net, const BertFolder& folder,
                       const std::string& path) {
  check_labels(net, folder.labels);
  const auto text = config_text(net.config(), folder);
  base::write_whole_folder(path, kOutput, [&](const std::string& made) {
    base::replace_file((fs::path(made) / "config.json").string(), text);
    write_safetensors((fs::path(made) / "model.safetensors").string(), module_state_dict(net),
                      {{"format", "pt"}});  // without it transformers refuses the file
    copy_tokenizer(folder.tokenizer, made);
  });
}

}  // namespace lockstep
