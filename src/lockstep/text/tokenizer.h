#pragma once
// BERT's tokenizer (WordPiece), cased and uncased. It gives the same tokens and offsets as Hugging Face's
// `tokenizers`.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

/// Which text to truncate if there are too many tokens.
enum class Truncation {
  kLongestFirst,  ///< the longer of two until both have the same length, then both
  kOnlyFirst,     ///< the first of two, or the only one
  kOnlySecond,    ///< the second of two
  kNone,          ///< neither; max_length is ignored
};

/// How to encode text.
struct EncodeOptions {
  size_t max_length = 512;                            ///< maximum number of tokens, with special tokens
  Truncation truncation = Truncation::kLongestFirst;  ///< which text to truncate, at its end
  bool special_tokens = true;                         ///< adds [CLS] at the start and [SEP] after each text
};

/// A token's characters, as code points of its text: from `begin` up to, but not including, `end`.
struct TokenOffsets {
  uint32_t begin = 0;  ///< the first character
  uint32_t end = 0;    ///< one after the last; begin = end = 0 for special tokens
  bool operator==(const TokenOffsets&) const = default;
};

/// The tokens of one text or two. All lists have the same length. Reuse the object to avoid allocations.
struct Encoding {
  std::vector<int32_t> ids;                  ///< token ids
  std::vector<uint8_t> type_ids;             ///< 1 for the second text and its [SEP]
  std::vector<uint8_t> special_tokens_mask;  ///< 1 for a special token
  std::vector<TokenOffsets> offsets;         ///< the range of characters of each token
};

/// One text or a pair. The strings must stay valid during the call.
struct TextPair {
  std::string_view first;                       ///< the text
  std::optional<std::string_view> second = {};  ///< the second text of a pair: a hypothesis, an answer, ...
};

/// Converts text to tokens. Immutable, so threads can share it if each has its own Encoding.
class Tokenizer {
 public:
  /// Reads a Hugging Face folder: vocab.txt (or the vocabulary in tokenizer.json), with do_lower_case,
  /// strip_accents, tokenize_chinese_chars and the special tokens from tokenizer_config.json, or from
  /// tokenizer.json if that lacks the key. Throws InputError if these files are missing or invalid.
  explicit Tokenizer(const std::string& folder);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// Encodes one text or a pair. Throws InputError if a text is not UTF-8, or cannot be truncated as
  /// `options` require.
  void encode(const TextPair& text, const EncodeOptions& options, Encoding& into) const;
  /// The same, but returns a new Encoding.
  Encoding encode(const TextPair& text, const EncodeOptions& options = {}) const;

  /// The size of the vocabulary, which is the number of rows in a model's embedding.
  size_t size() const;
  /// The text of a token in the vocabulary.
  const std::string& token(int32_t id) const;
  /// The id of a token, or nullopt if it is not in the vocabulary.
  std::optional<int32_t> id(std::string_view token) const;
  /// The id of [PAD].
  int32_t pad_id() const;
  /// The id of [UNK], the token for text that the vocabulary does not cover.
  int32_t unk_id() const;

 private:
  struct Parts;
  std::unique_ptr<const Parts> parts_;
};

}  // namespace lockstep
