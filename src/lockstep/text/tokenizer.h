#pragma once
// BERT's tokenizer (WordPiece), cased and uncased: what Hugging Face's `tokenizers` gives, token for token
// and offset for offset.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/text/encoding.h"

namespace lockstep {

/// Texts to tokens. It is read once and never changes: any number of threads may use one, each with an
/// Encoding of its own.
class Tokenizer {
 public:
  /// From a Hugging Face folder: vocab.txt (or the vocabulary in tokenizer.json), with do_lower_case,
  /// strip_accents, tokenize_chinese_chars and the special tokens of tokenizer_config.json, or of
  /// tokenizer.json where that is silent. InputError where it is not such a folder.
  explicit Tokenizer(const std::string& folder);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// A text, or two. InputError for a text that is not UTF-8, or that cannot be cut as `options` want it.
  void encode(const TextPair& text, const EncodeOptions& options, Encoding& into) const;
  /// The same for one text, with memory of its own.
  Encoding encode(const TextPair& text, const EncodeOptions& options = {}) const;

  /// How many tokens there are: a model's table of embeddings has a row for each.
  size_t size() const;
  /// A token's text; `id` is of this vocabulary.
  const std::string& token(int32_t id) const;
  /// A token's number, or nothing.
  std::optional<int32_t> id(std::string_view token) const;
  /// The number of [PAD].
  int32_t pad_id() const;
  /// The number of [UNK], which stands for what the vocabulary has no tokens for.
  int32_t unk_id() const;

 private:
  struct Parts;
  std::unique_ptr<const Parts> parts_;
};

}  // namespace lockstep
