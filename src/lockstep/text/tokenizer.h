#pragma once
// BERT's tokenizer (WordPiece), cased and uncased: what Hugging Face's `tokenizers` gives, token for token
// and offset for offset.

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
  kLongestFirst,  ///< the longer of two, until they are of one length, then both
  kOnlyFirst,     ///< the first of two, or the only one
  kOnlySecond,    ///< the second of two
  kNone,          ///< nowhere, however long it is
};

/// How texts are encoded.
struct EncodeOptions {
  size_t max_length = 512;  ///< tokens, those that are added counted in
  Truncation truncation =
      Truncation::kLongestFirst;  ///< what is left out of longer ones: the end, of which text
  bool special_tokens = true;     ///< [CLS] before, [SEP] after each text
};

/// The characters that a token stands for, counted in code points of its text; `end` is one after the last.
struct TokenOffsets {
  uint32_t begin = 0;  ///< the first
  uint32_t end = 0;    ///< one after the last; 0 to 0 for a token that was added
  bool operator==(const TokenOffsets&) const = default;
};

/// One text, or two, as tokens; the lists have one length. Made for reuse: the next text keeps the memory.
struct Encoding {
  std::vector<int32_t> ids;                  ///< the tokens' numbers in the vocabulary
  std::vector<uint8_t> type_ids;             ///< 1 for the second of two texts and its [SEP]
  std::vector<uint8_t> special_tokens_mask;  ///< 1 for a token that was added
  std::vector<TokenOffsets> offsets;         ///< where in its text each stood
};

/// A text, or two that belong together; the texts must stay valid during the call.
struct TextPair {
  std::string_view first;                       ///< the text
  std::optional<std::string_view> second = {};  ///< a hypothesis, an answer, ...
};

/// Texts to tokens. Immutable: any number of threads may use one, each with its own Encoding.
class Tokenizer {
 public:
  /// From a Hugging Face folder: vocab.txt (or the vocabulary in tokenizer.json), with do_lower_case,
  /// strip_accents, tokenize_chinese_chars and the special tokens of tokenizer_config.json, or of
  /// tokenizer.json if that lacks the key. InputError if it is not such a folder.
  explicit Tokenizer(const std::string& folder);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  /// A text, or two. InputError for a text that is not UTF-8, or that cannot be truncated as `options`
  /// require.
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
  /// The number of [UNK], the token for text that the vocabulary does not cover.
  int32_t unk_id() const;

 private:
  struct Parts;
  std::unique_ptr<const Parts> parts_;
};

}  // namespace lockstep
