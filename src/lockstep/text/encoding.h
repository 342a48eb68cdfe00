#pragma once
// What a text becomes: the tokens' numbers and where they stood. Made for reuse: the next text keeps the
// memory.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace lockstep {

/// Where a text is cut that has too many tokens.
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
  bool special_tokens = true;     ///< [CLS] before, [SEP] behind each text
};

/// The characters that a token stands for, counted in code points of its text; `end` is behind the last.
struct TokenOffsets {
  uint32_t begin = 0;  ///< the first
  uint32_t end = 0;    ///< behind the last; 0 to 0 for a token that was added
  bool operator==(const TokenOffsets&) const = default;
};

/// One text, or two, as tokens; the lists are of one length.
struct Encoding {
  std::vector<int32_t> ids;                  ///< the tokens' numbers in the vocabulary
  std::vector<uint8_t> type_ids;             ///< 1 for the second of two texts and its [SEP]
  std::vector<uint8_t> special_tokens_mask;  ///< 1 for a token that was added
  std::vector<TokenOffsets> offsets;         ///< where in its text each stood
};

/// A text, or two that belong together; what they show must live as long as the call.
struct TextPair {
  std::string_view first;                       ///< the text
  std::optional<std::string_view> second = {};  ///< a hypothesis, an answer, ...
};

}  // namespace lockstep
