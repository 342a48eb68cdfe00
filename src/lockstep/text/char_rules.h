#pragma once
// How a BERT model wants its text normalised, as tables by byte and a mask over a character's flags.

#include <array>
#include <cstdint>
#include <optional>

#include "lockstep/text/unicode.h"

namespace lockstep::text {

/// BertNormalizer's options, by the names that tokenizer_config.json gives them.
struct NormalizerOptions {
  bool do_lower_case = true;
  std::optional<bool> strip_accents = {};  // none = as do_lower_case
  bool tokenize_chinese_chars = true;
  bool clean_text = true;
};

enum class ByteKind : uint8_t { kLetter, kSpace, kSign, kOther };  // kOther: what the quick way cannot do

struct CharRules {
  explicit CharRules(const NormalizerOptions& options);

  ByteKind kind(char byte) const { return kinds[static_cast<unsigned char>(byte)]; }
  bool lowers() const { return heeded & kCapital; }
  char lowered(char byte) const { return lower[static_cast<unsigned char>(byte)]; }

  uint8_t heeded;  // the flags that matter here
  std::array<ByteKind, 256> kinds;
  std::array<char, 256> lower;  // of ASCII; the same byte where case stays
};

}  // namespace lockstep::text
