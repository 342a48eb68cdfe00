#pragma once
// BERT's normalizer, pre-tokenizer and WordPiece in one pass: a text's words, each cut into tokens as soon as
// it ends.
//
// Hugging Face's code takes its steps over the whole text, one after the other: control characters out,
// blanks around ideographs, canonical decomposition (NFD), accents out, lower case; then words between
// blanks, and each punctuation mark a word. What a step does to a character depends on its neighbors in one
// place alone: NFD sorts the combining characters behind a base character by their class.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/text/tokenizer.h"

namespace lockstep::text {

constexpr size_t kLongestWord = 100;           // characters; a longer word is unknown, as in BERT's code
constexpr std::string_view kContinues = "##";  // a token that continues a word begins with this

/// BertNormalizer's options, by the names that tokenizer_config.json gives them.
struct NormalizerOptions {
  bool do_lower_case = true;
  std::optional<bool> strip_accents = {};  // none = as do_lower_case
  bool tokenize_chinese_chars = true;
  bool clean_text = true;
};

/// Tokens that are tokens wherever a text has them ([SEP] typed by a person is a [SEP]), and their numbers.
using SpecialTokens = std::vector<std::pair<std::string, int32_t>>;

class WordCutter {
 public:
  /// `unknown` is the token for words that the others cannot make up.
  WordCutter(const std::vector<std::string>& tokens, SpecialTokens specials, int32_t unknown,
             const NormalizerOptions& options);
  ~WordCutter();
  WordCutter(WordCutter&&) noexcept;

  /// Appends the tokens and offsets of a text that is known to be UTF-8; how many. At `limit` it stops after
  /// the word that reaches it.
  size_t cut(std::string_view text, size_t limit, Encoding& into) const;

 private:
  struct Parts;
  std::unique_ptr<const Parts> parts_;
};

/// A line of UTF-8 without the Unicode white space at its end.
std::string_view without_blanks(std::string_view line);

}  // namespace lockstep::text
