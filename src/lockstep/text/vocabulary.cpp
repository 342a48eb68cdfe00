#include "lockstep/text/vocabulary.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <optional>
#include <unordered_map>

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

constexpr size_t kMostJsonBytes = size_t{256} << 20;
constexpr const char* kFolderHint =
    "give the folder of a BERT model, as transformers' save_pretrained() writes it";

/// An object in a file; an empty one where there is none.
struct Source {
  Json json = Json::object();
  std::string where;

  bool has(const char* key) const { return json.contains(key) && !json[key].is_null(); }
  [[noreturn]] void refuse(const std::string& what) const { throw InputError(what, where, kFolderHint); }
  Source at(const char* key) const;
  std::vector<Source> items(const char* key) const;
  std::optional<bool> truth(const char* key) const;
  std::optional<std::string> text(const char* key) const;
};

Source Source::at(const char* key) const {
  if (!has(key)) return {Json::object(), where + ": " + key};
  if (!json[key].is_object()) refuse(format("{} is no object", key));
  return {json[key], where + ": " + key};
}

/// What a list or an object holds: tokens, each a text or an object with its "content".
std::vector<Source> Source::items(const char* key) const {
  std::vector<Source> found;
  if (!has(key)) return found;
  if (!json[key].is_structured()) refuse(format("{} is no list", key));
  for (const auto& [name, item] : json[key].items()) {
    if (!item.is_string() && !item.is_object())
      refuse(format("{}: {} is no token", key, base::printable(name)));
    Source token{item.is_object() ? item : Json{{"content", item}}, where + ": " + key};
    if (!token.text("content")) token.refuse("a token has no content");
    found.push_back(std::move(token));
  }
  return found;
}

std::optional<bool> Source::truth(const char* key) const {
  if (!has(key)) return std::nullopt;
  if (!json[key].is_boolean()) refuse(format("{} is neither true nor false", key));
  return json[key].get<bool>();
}

std::optional<std::string> Source::text(const char* key) const {
  if (!has(key)) return std::nullopt;
  const Json& value =
      json[key].is_object() && json[key].contains("content") ? json[key]["content"] : json[key];
  if (!value.is_string() || value.get_ref<const std::string&>().empty()) refuse(format("{} is no text", key));
  return value.get<std::string>();
}

Source read_json(const fs::path& path) {
  Source source{Json::object(), path.string()};
  if (!fs::exists(path)) return source;
  const std::string text = base::read_small_file(path.string(), kMostJsonBytes, path.filename().string());
  source.json = base::parse_json(text);
  if (!source.json.is_object())
    source.refuse(format("{} is not JSON, or no object, or nested too deeply", path.filename().string()));
  return source;
}

// Another kind of tokenizer would give other tokens without a word.
void require_value(const Source& source, const char* key, const Json& wanted) {
  if (!source.has(key) || source.json[key] == wanted) return;
  source.refuse(
      format("{} is {}, and BERT's is {}", key, base::printable(source.json[key].dump()), wanted.dump()));
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
      model.refuse(format("the tokens' numbers are not 0 to {}, each once: \"{}\" has {}", rows.size() - 1,
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

class Tokens {
 public:
  explicit Tokens(std::vector<std::string> list) : list_(std::move(list)) {
    for (size_t i = 0; i < list_.size(); ++i) numbers_.emplace(list_[i], i);
  }
  /// Its number, which is the next one where it is new.
  size_t add(const std::string& token) {
    const auto [row, is_new] = numbers_.emplace(token, list_.size());
    if (is_new) list_.push_back(token);
    return row->second;
  }
  std::vector<std::string> take() { return std::move(list_); }

 private:
  std::vector<std::string> list_;
  std::unordered_map<std::string, size_t> numbers_;
};

// What the model's owner added is found in a text as it is, like BERT's own; a new one gets the next number.
void take_added(const Source& token, Tokens& known, std::vector<std::string>& specials) {
  const std::string text = *token.text("content");
  for (const char* key : {"lstrip", "rstrip", "single_word", "normalized"})
    if (token.truth(key).value_or(false))
      token.refuse(
          format("the added token \"{}\" has {}, which is not known here", base::printable(text), key));
  const size_t id = known.add(text);
  if (token.has("id") && token.json["id"] != id)
    token.refuse(format("the added token \"{}\" has the number {}, and the vocabulary makes it {}",
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

  Tokens tokens(read_tokens(folder, tokenizer));
  std::vector<std::string> specials;
  for (const Source& token : tokenizer.items("added_tokens")) take_added(token, tokens, specials);
  for (const char* list : {"added_tokens_decoder", "additional_special_tokens", "extra_special_tokens"})
    for (const Source& token : config.items(list)) take_added(token, tokens, specials);

  TokenizerFolder read{.vocabulary = {tokens.take(), path},
                       .options = options_of(config, tokenizer.at("normalizer"))};
  read.more_specials = std::move(specials);
  const Source model = tokenizer.at("model");
  read.unk = config.text("unk_token").value_or(model.text("unk_token").value_or(read.unk));
  read.cls = config.text("cls_token").value_or(read.cls);
  read.sep = config.text("sep_token").value_or(read.sep);
  read.pad = config.text("pad_token").value_or(read.pad);
  read.mask = config.text("mask_token").value_or(read.mask);
  return read;
}

namespace {

constexpr size_t kMostVocabularyBytes = size_t{256} << 20;
constexpr const char* kVocabularyHint = "copy the model's vocab.txt again, as it was published";

// Hugging Face's reader takes every kind of blank away from a line's end.
std::string_view without_blanks(std::string_view line) {
  while (!line.empty()) {
    size_t last = line.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(line[last]) & 0xC0) == 0x80) --last;
    if (!(char_flags()[decode(line.data() + last).value] & kSpace)) break;
    line = line.substr(0, last);
  }
  return line;
}

void refuse_other_encodings(const std::string& text, const std::string& path) {
  const auto at = base::invalid_utf8(text);
  if (!at) return;
  const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(*at), '\n');
  throw InputError(
      format("the vocabulary is not UTF-8: byte 0x{:02X}", static_cast<unsigned char>(text[*at])),
      format("{}:{}", path, line), kVocabularyHint);
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(without_blanks(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

}  // namespace

std::vector<std::string> read_vocabulary(const std::string& path) {
  const std::string text = base::read_small_file(path, kMostVocabularyBytes, "the vocabulary");
  refuse_other_encodings(text, path);
  return lines_of(text);
}

Vocabulary::Vocabulary(std::vector<std::string> tokens, std::string where)
    : tokens_(std::move(tokens)), order_(tokens_.size()), where_(std::move(where)) {
  if (tokens_.empty()) throw InputError("the vocabulary is empty", where_, kVocabularyHint);
  std::iota(order_.begin(), order_.end(), 0);
  std::sort(order_.begin(), order_.end(), [this](int32_t a, int32_t b) {
    const int less = text(a).compare(text(b));
    return less != 0 ? less < 0 : a < b;
  });
  refuse_doubles();
}

void Vocabulary::refuse_doubles() const {
  const auto twice = std::adjacent_find(order_.begin(), order_.end(),
                                        [this](int32_t a, int32_t b) { return text(a) == text(b); });
  if (twice == order_.end()) return;
  throw InputError(
      format("the vocabulary has {} twice, as the tokens {} and {}",
             text(*twice).empty() ? "an empty line" : "\"" + base::printable(text(*twice)) + "\"", *twice,
             *(twice + 1)),
      where_, kVocabularyHint);
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
  const auto at = std::lower_bound(order_.begin(), order_.end(), token,
                                   [this](int32_t id, std::string_view wanted) { return text(id) < wanted; });
  if (at == order_.end() || text(*at) != token) return std::nullopt;
  return *at;
}

}  // namespace lockstep::text
