#include "lockstep/models/bert_folder.h"

#include <torch/types.h>
#include <torch/utils.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <set>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/files/whole_file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/pt.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/checkpoint/state_dict.h"

namespace lockstep {

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kBertFolder =
    "set model.path to the folder of a BERT model, as transformers' save_pretrained() writes it";

constexpr std::string_view kPadding = "pad_token_id";  // null in the file if there is none

/// Calls visit(name, member) for each key of config.json that BertConfig has.
template <class Config, class Visit>
void for_each_field(Config& config, const Visit& visit) {
  visit("vocab_size", config.vocab_size);
  visit("hidden_size", config.hidden_size);
  visit("num_hidden_layers", config.num_hidden_layers);
  visit("num_attention_heads", config.num_attention_heads);
  visit("intermediate_size", config.intermediate_size);
  visit("max_position_embeddings", config.max_position_embeddings);
  visit("type_vocab_size", config.type_vocab_size);
  visit(kPadding.data(), config.pad_token_id);
  visit("hidden_act", config.hidden_act);
  visit("hidden_dropout_prob", config.hidden_dropout_prob);
  visit("attention_probs_dropout_prob", config.attention_probs_dropout_prob);
  visit("classifier_dropout", config.classifier_dropout);
  visit("initializer_range", config.initializer_range);
  visit("layer_norm_eps", config.layer_norm_eps);
}

constexpr size_t kLargestConfig = size_t{16} << 20;
constexpr const char* kOptions = "omit options that you are not sure of: each has BERT-base's default";

/// Where a value comes from: a folder or the options.
struct Place {
  std::string where;
  const char* hint;
  [[noreturn]] void refuse(const std::string& what) const { throw InputError(what, where, hint); }
};

/// Takes a member from config.json. Returns what the value must be if it is something else.
template <class T>
const char* read_member(const Json& value, T& member) {
  if constexpr (std::is_same_v<T, std::string>) {
    if (!value.is_string()) return "a text";
    member = value.get<std::string>();
  } else if constexpr (std::is_same_v<T, int64_t>) {
    if (!value.is_number_integer()) return "an integer";
    member = value.get<int64_t>();
  } else {
    if (!value.is_number()) return "a number";
    member = value.get<double>();
  }
  return nullptr;
}

void check_sizes(const BertConfig& config, const Place& place) {
  for_each_field(config, [&]<class T>(std::string_view name, const T& value) {
    if constexpr (std::is_same_v<T, int64_t>) {
      const int64_t least = name == kPadding ? -1 : 1;
      const int64_t most = name == "num_hidden_layers" ? 1000 : int64_t{1} << 31;
      if (value < least || value > most)
        place.refuse(format("{} is {}, and must be from {} to {}", name, value, least, most));
    }
  });
  if (config.hidden_size % config.num_attention_heads != 0)
    place.refuse(format("hidden_size is {}, which is not a multiple of num_attention_heads, {}",
                        config.hidden_size, config.num_attention_heads));
  if (config.pad_token_id >= config.vocab_size)
    place.refuse(format("{} is {}, but vocab_size is {}", kPadding, config.pad_token_id, config.vocab_size));
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
  const auto known = bert_activations();
  if (std::find(known.begin(), known.end(), config.hidden_act) != known.end()) return;
  place.refuse(
      format("hidden_act is {}; known are {}", base::printable(config.hidden_act), base::join(known, ", ")));
}

// Named like BERT's or not, the weights of another architecture would be taken wrongly.
void require_bert(const Json& json, const Place& place) {
  const auto require = [&](const char* key, const Json& wanted) {
    const auto found = json.find(key);
    if (found == json.end() || found->is_null() || *found == wanted) return;
    place.refuse(format("{} is {}, but must be {}", key, base::printable(found->dump()), wanted.dump()));
  };
  require("model_type", "bert");
  require("position_embedding_type", "absolute");
  require("is_decoder", false);
  require("add_cross_attention", false);
  if (!json.contains("model_type") && !json.contains("vocab_size"))
    place.refuse("config.json does not describe a model: it has neither model_type nor vocab_size");
}

Json read_json(const std::string& file, const Place& place) {
  if (!fs::exists(file)) place.refuse("the folder has no config.json");
  const auto json = base::parse_json(base::read_small_file(file, kLargestConfig, "config.json"));
  if (!json.is_object()) place.refuse("config.json is not a JSON object, or is nested too deeply");
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
  for_each_field(config, [&](const char* name, auto& member) {
    const auto found = json.find(name);
    if (found == json.end()) return;
    if (found->is_null()) {
      if (name == kPadding) config.pad_token_id = -1;
      return;
    }
    if (const auto* wanted = read_member(*found, member))
      place.refuse(format("{} is {}, and must be {}", name, base::printable(found->dump()), wanted));
  });
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
  for_each_field(config, [&]<class T>(const char* name, T& member) {
    if (!options.contains(name)) return;
    if constexpr (std::is_same_v<T, std::optional<double>>)
      member = option(options, name, 0.0);
    else
      member = option(options, name, member);
  });
  check_config(config, {"model.options", kOptions});
  return config;
}

namespace {

constexpr size_t kNamed = 5;  // tensors that a message names
constexpr const char* kBase = "bert.";
constexpr const char* kClassifier = "classifier";
constexpr const char* kPooler = "bert.pooler";

std::string find_weights(const fs::path& folder) {
  for (const char* name : {"model.safetensors", "pytorch_model.bin"})
    if (fs::exists(folder / name)) return (folder / name).string();
  throw InputError("the folder has no weights: neither model.safetensors nor pytorch_model.bin",
                   folder.string(),
                   "write one in Python: BertForSequenceClassification.from_pretrained(FOLDER)."
                   "save_pretrained(FOLDER, max_shard_size=\"100GB\")");
}

// Names as they have been since 2019; those of a base model alone get its prefix.
Tree renamed(const Tree& state) {
  constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {
      {"LayerNorm.gamma", "LayerNorm.weight"}, {"LayerNorm.beta", "LayerNorm.bias"}};
  const auto entries = items(state);
  const bool base_alone = std::any_of(entries.begin(), entries.end(), [](const auto& entry) {
    return entry.first.toStringRef().starts_with("embeddings.");
  });
  auto tensors = make_dict();
  for (const auto& [key, value] : entries) {
    auto name = (base_alone ? kBase : "") + key.toStringRef();
    for (const auto& [old_ending, ending] : kRenamed)
      if (name.ends_with(old_ending)) name.replace(name.size() - old_ending.size(), name.npos, ending);
    put(tensors, name, value);
  }
  return tensors;
}

std::string few(const std::vector<std::string>& all) {
  const std::vector<std::string> some(all.begin(),
                                      all.begin() + std::min<ptrdiff_t>(kNamed, std::ssize(all)));
  return base::join(some, ", ") + (all.size() > kNamed ? format(" and {} more", all.size() - kNamed) : "");
}

bool is_of(const std::string& tensor, const std::string& module) {
  return tensor.starts_with(module + ".");
}

/// What of the file goes where.
struct WeightMatch {
  std::set<std::string> drawn;                                // modules
  std::vector<std::pair<at::Tensor, at::Tensor>> taken = {};  // the model's, the file's
  std::vector<std::string> missing = {}, misfits = {}, strange = {}, unused = {};
};

std::set<std::string> modules_to_draw(const Tree& given, bool new_classifier) {
  std::set<std::string> modules = {kPooler, kClassifier};
  for (const auto& entry : items(given))
    std::erase_if(modules, [&](const auto& module) { return is_of(entry.first.toStringRef(), module); });
  if (new_classifier) modules.insert(kClassifier);
  return modules;
}

WeightMatch fit_of(const Tree& own, const Tree& given, bool new_classifier) {
  WeightMatch fit{.drawn = modules_to_draw(given, new_classifier)};
  for (const auto& [key, value] : items(own)) {
    const auto& name = key.toStringRef();
    if (std::ranges::any_of(fit.drawn, [&](const auto& module) { return is_of(name, module); })) continue;
    const auto& wanted = value.toTensor();
    const auto found = find(given, name);
    if (!found)
      fit.missing.push_back(name);
    else if (const auto& tensor = found->toTensor();
             tensor.sizes() == wanted.sizes() && tensor.is_floating_point())
      fit.taken.emplace_back(wanted, tensor);
    else
      fit.misfits.push_back(format("{}: {} {} in the file, {} in the model", name,
                                   c10::toString(tensor.scalar_type()), c10::str(tensor.sizes()),
                                   c10::str(wanted.sizes())));
  }
  for (const auto& [key, value] : items(given)) {
    const auto& name = key.toStringRef();
    if (find(own, name) || name.ends_with(".position_ids") || name.ends_with(".token_type_ids")) continue;
    (name.starts_with(kBase) ? fit.strange : fit.unused).push_back(name);
  }
  return fit;
}

const char* hint_for(const WeightMatch& fit) {
  const auto only_classifier = std::all_of(fit.misfits.begin(), fit.misfits.end(),
                                           [](const auto& text) { return is_of(text, kClassifier); });
  return only_classifier && !fit.misfits.empty()
             ? "set model.options.new_classifier to true to train a new classifier, or use data with the "
               "file's classes"
             : "use a folder whose config.json and weights match, and remove sizes from model.options";
}

void check_weights(const WeightMatch& fit, const std::string& file) {
  std::string text;
  if (!fit.misfits.empty()) text += "\n  of another shape: " + few(fit.misfits);
  if (!fit.missing.empty()) text += "\n  missing: " + few(fit.missing);
  if (!fit.strange.empty()) text += "\n  not in the model: " + few(fit.strange);
  if (!text.empty()) throw InputError("the weights belong to another model" + text, file, hint_for(fit));
}

// The file's memory becomes the model's: nothing is held twice.
void take(const at::Tensor& own, const at::Tensor& given, std::set<const void*>& taken) {
  auto tensor = given.detach().to(own.options().requires_grad(false)).contiguous();
  const bool alone =
      tensor.storage().nbytes() == tensor.nbytes() && taken.insert(tensor.storage().data()).second;
  own.set_data(alone ? tensor : tensor.clone());
}

std::string note_of(const WeightMatch& fit, const std::string& file) {
  std::string note;
  if (!fit.drawn.empty())
    note = format("{} has no {}: randomly initialized", file,
                  base::join({fit.drawn.begin(), fit.drawn.end()}, " and no "));
  if (!fit.unused.empty())
    note += format("{}of {} are not used: {}", note.empty() ? "" : "; ", file, few(fit.unused));
  return note;
}

}  // namespace

void read_bert_weights(BertForSequenceClassification& net, const std::string& folder, bool new_classifier) {
  const auto file = find_weights(folder);
  const auto state = renamed(find_state_dict(read_checkpoint_file(file), file));
  const auto fit = fit_of(module_state_dict(net), state, new_classifier);
  check_weights(fit, file);
  const torch::NoGradGuard no_grad;
  std::set<const void*> taken;
  for (const auto& [own, given] : fit.taken) take(own, given, taken);
  net.draw({fit.drawn.begin(), fit.drawn.end()});
  net.set_training_note(note_of(fit, file));
}

namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kOutput = "name a new folder";
constexpr const char* kTokenizerFiles[] = {"vocab.txt", "tokenizer_config.json", "tokenizer.json",
                                           "special_tokens_map.json", "added_tokens.json"};
// What transformers would believe rather than the keys written here.
constexpr const char* kOutdated[] = {"num_labels",    "_num_labels",          "torch_dtype",
                                     "_name_or_path", "transformers_version", "quantization_config"};

OrderedJson present_config(const std::string& pretrained) {
  const auto file = fs::path(pretrained) / "config.json";
  if (pretrained.empty() || !fs::exists(file)) return OrderedJson::object();
  auto json =
      base::parse_json<OrderedJson>(base::read_small_file(file.string(), kLargestConfig, "config.json"));
  if (!json.is_object())
    throw InputError("config.json is not a JSON object", file.string(), "correct the file");
  for (const char* key : kOutdated) json.erase(key);
  return json;
}

std::string config_text(const BertConfig& config, const BertFolder& folder) {
  auto json = present_config(folder.pretrained);
  json["architectures"] = {"BertForSequenceClassification"};
  json["model_type"] = "bert";
  for_each_field(config, [&]<class T>(const char* name, const T& member) {
    if constexpr (std::is_same_v<T, std::optional<double>>)
      json[name] = member ? OrderedJson(*member) : OrderedJson();
    else
      json[name] = member;
  });
  if (config.pad_token_id < 0) json[kPadding.data()] = nullptr;
  json["dtype"] = "float32";
  json["problem_type"] = folder.regression ? "regression" : "single_label_classification";
  json["id2label"] = json["label2id"] = OrderedJson::object();
  for (size_t i = 0; i < folder.labels.size(); ++i) {
    json["id2label"][format("{}", i)] = folder.labels[i];
    json["label2id"][folder.labels[i]] = i;
  }
  return base::as_lines(json);
}

void check_labels(const BertForSequenceClassification& net, const std::vector<std::string>& labels) {
  const auto classes = net.named_parameters()["classifier.bias"].size(0);
  if (classes == std::ssize(labels)) return;
  throw InputError(format("the model has {} classes, but {} names are given", classes, labels.size()),
                   "task.name", "use the config that the checkpoint was trained with");
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
