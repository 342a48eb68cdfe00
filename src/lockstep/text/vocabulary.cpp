#include "lockstep/text/vocabulary.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>

#include "lockstep/base/error.h"
#include "lockstep/base/files/file.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "lockstep/text/word_cutter.h"

namespace lockstep::text {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr size_t kMostBytes = size_t{256} << 20;  // of a file
constexpr const char* kVocabularyHint = "copy the model's vocab.txt again, as it was published";
constexpr const char* kFolderHint =
    "set task.vocabulary (or model.path, if the former is empty) to a folder that save_pretrained() wrote";

/// An object in a file; an empty one where there is none.
struct Source {
  Json json = Json::object();
  std::string where;

  bool has(const char* key) const { return json.contains(key) && !json[key].is_null(); }
  [[noreturn]] void refuse(const std::string& what) const { throw InputError(what, where, kFolderHint); }

  Source at(const char* key) const {
    if (!has(key)) return {Json::object(), where + ": " + key};
    if (!json[key].is_object()) refuse(format("{} is not an object", key));
    return {json[key], where + ": " + key};
  }

  /// What a list or an object holds: tokens, each a text or an object with its "content".
  std::vector<Source> items(const char* key) const {
    std::vector<Source> found;
    if (!has(key)) return found;
    if (!json[key].is_structured()) refuse(format("{} is not a list", key));
    for (const auto& [name, item] : json[key].items()) {
      if (!item.is_string() && !item.is_object())
        refuse(format("{}: {} is not a token", key, base::printable(name)));
      Source token{item.is_object() ? item : Json{{"content", item}}, where + ": " + key};
      if (!token.text("content")) token.refuse("a token has no content");
      found.push_back(std::move(token));
    }
    return found;
  }

  std::optional<bool> truth(const char* key) const {
    if (!has(key)) return std::nullopt;
    if (!json[key].is_boolean()) refuse(format("{} is neither true nor false", key));
    return json[key].get<bool>();
  }

  std::optional<std::string> text(const char* key) const {
    if (!has(key)) return std::nullopt;
    const Json& value =
        json[key].is_object() && json[key].contains("content") ? json[key]["content"] : json[key];
    if (!value.is_string() || value.get_ref<const std::string&>().empty())
      refuse(format("{} is not a text", key));
    return value.get<std::string>();
  }
};

Source read_json(const fs::path& path) {
  Source source{Json::object(), path.string()};
  if (!fs::exists(path)) return source;
  const std::string text = base::read_small_file(path.string(), kMostBytes, path.filename().string());
  source.json = base::parse_json(text);
  if (!source.json.is_object())
    source.refuse(format("{} is not a JSON object, or is nested too deeply", path.filename().string()));
  return source;
}

// Another kind of tokenizer would silently give other tokens.
void require_value(const Source& source, const char* key, const Json& wanted) {
  if (!source.has(key) || source.json[key] == wanted) return;
  source.refuse(
      format("{} is {}, but must be {}", key, base::printable(source.json[key].dump()), wanted.dump()));
}

void require_bert(const Source& tokenizer) {
  require_value(tokenizer.at("normalizer"), "type", "BertNormalizer");
  require_value(tokenizer.at("pre_tokenizer"), "type", "BertPreTokenizer");
  const Source model = tokenizer.at("model");
  require_value(model, "type", "WordPiece");
  require_value(model, "continuing_subword_prefix", std::string(kContinues));
  require_value(model, "max_input_chars_per_word", kLongestWord);
}

std::vector<std::string> tokens_of(const Source& model) {
  const Json& rows = model.at("vocab").json;
  std::vector<std::string> tokens(rows.size());
  std::vector<bool> seen(rows.size());
  for (const auto& [token, id] : rows.items()) {
    if (!id.is_number_unsigned() || id.get<uint64_t>() >= rows.size() || seen[id.get<size_t>()])
      model.refuse(format("each number from 0 to {} must belong to one token: \"{}\" has {}", rows.size() - 1,
                          base::printable(token), base::printable(id.dump())));
    seen[id.get<size_t>()] = true;
    tokens[id.get<size_t>()] = token;
  }
  return tokens;
}

std::vector<std::string> read_tokens(const fs::path& folder, const Source& tokenizer) {
  if (fs::exists(folder / "vocab.txt")) return read_vocabulary((folder / "vocab.txt").string());
  const Source model = tokenizer.at("model");
  if (model.has("vocab")) return tokens_of(model);
  throw InputError("the folder has no vocabulary: no vocab.txt, and none in tokenizer.json", folder.string(),
                   kFolderHint);
}

NormalizerOptions options_of(const Source& config, const Source& normalizer) {
  const auto either = [&](const char* key, const char* other) {
    const auto said = config.truth(key);
    return said ? said : normalizer.truth(other);
  };
  return {.do_lower_case = either("do_lower_case", "lowercase").value_or(true),
          .strip_accents = either("strip_accents", "strip_accents"),
          .tokenize_chinese_chars = either("tokenize_chinese_chars", "handle_chinese_chars").value_or(true),
          .clean_text = either("clean_text", "clean_text").value_or(true)};
}

// What the model's owner added is found in a text as it is, like BERT's own; a new one gets the next number.
void take_added(const Source& token, Vocabulary& known, std::vector<std::string>& specials) {
  const std::string text = *token.text("content");
  for (const char* key : {"lstrip", "rstrip", "single_word", "normalized"})
    if (token.truth(key).value_or(false))
      token.refuse(
          format("the added token \"{}\" has {}, which is not supported", base::printable(text), key));
  const int32_t id = known.add(text);
  if (token.has("id") && token.json["id"] != id)
    token.refuse(format("the added token \"{}\" has the number {}, but the vocabulary gives it {}",
                        base::printable(text), base::printable(token.json["id"].dump()), id));
  specials.push_back(text);
}

}  // namespace

TokenizerFolder read_folder(const std::string& path) {
  const fs::path folder(path);
  if (!fs::is_directory(folder))
    throw InputError("there is no such folder", base::printable(path, 4096), kFolderHint);
  const Source config = read_json(folder / "tokenizer_config.json");
  const Source tokenizer = read_json(folder / "tokenizer.json");
  require_bert(tokenizer);

  TokenizerFolder read{.vocabulary = {read_tokens(folder, tokenizer), path},
                       .options = options_of(config, tokenizer.at("normalizer"))};
  const auto add = [&](const Source& token) { take_added(token, read.vocabulary, read.more_specials); };
  for (const Source& token : tokenizer.items("added_tokens")) add(token);
  for (const char* list : {"added_tokens_decoder", "additional_special_tokens", "extra_special_tokens"})
    for (const Source& token : config.items(list)) add(token);
  const Source model = tokenizer.at("model");
  read.unk = config.text("unk_token").value_or(model.text("unk_token").value_or(read.unk));
  read.cls = config.text("cls_token").value_or(read.cls);
  read.sep = config.text("sep_token").value_or(read.sep);
  read.pad = config.text("pad_token").value_or(read.pad);
  read.mask = config.text("mask_token").value_or(read.mask);
  return read;
}

std::vector<std::string> read_vocabulary(const std::string& path) {
  const std::string text = base::read_small_file(path, kMostBytes, "the vocabulary");
  if (const auto at = base::invalid_utf8(text)) {
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(*at), '\n');
    throw InputError(
        format("the vocabulary is not UTF-8: byte 0x{:02X}", static_cast<unsigned char>(text[*at])),
        format("{}:{}", path, line), kVocabularyHint);
  }
  std::vector<std::string> lines;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = std::min(rest.find('\n'), rest.size());
    lines.emplace_back(without_blanks(rest.substr(0, end)));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return lines;
}

Vocabulary::Vocabulary(std::vector<std::string> tokens, std::string where)
    : tokens_(std::move(tokens)), where_(std::move(where)) {
  if (tokens_.empty()) throw InputError("the vocabulary is empty", where_, kVocabularyHint);
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const auto& token = tokens_[i];
    const auto [first, is_new] = numbers_.emplace(token, static_cast<int32_t>(i));
    if (!is_new)
      throw InputError(
          format("the vocabulary holds {} twice, as tokens {} and {}",
                 token.empty() ? "an empty line" : "\"" + base::printable(token) + "\"", first->second, i),
          where_, kVocabularyHint);
  }
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  const auto found = numbers_.find(token);
  return found == numbers_.end() ? std::nullopt : std::optional(found->second);
}

int32_t Vocabulary::add(const std::string& token) {
  const auto [row, is_new] = numbers_.emplace(token, static_cast<int32_t>(tokens_.size()));
  if (is_new) tokens_.push_back(token);
  return row->second;
}

}  // namespace lockstep::text
