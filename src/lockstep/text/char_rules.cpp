#include "lockstep/text/char_rules.h"

namespace lockstep::text {
namespace {

uint8_t heeded_flags(const NormalizerOptions& options) {
  int flags = kSpace | kPunctuation;
  if (options.clean_text) flags |= kRemoved;
  if (options.tokenize_chinese_chars) flags |= kIdeograph;
  if (options.strip_accents.value_or(options.do_lower_case)) flags |= kMark | kCombines | kDecomposes;
  if (options.do_lower_case) flags |= kCapital;
  return static_cast<uint8_t>(flags);
}

ByteKind kind_of(int flags) {
  if (flags & kRemoved) return ByteKind::kOther;
  if (flags & kSpace) return ByteKind::kSpace;
  return flags & kPunctuation ? ByteKind::kSign : ByteKind::kLetter;
}

}  // namespace

CharRules::CharRules(const NormalizerOptions& options) : heeded(heeded_flags(options)) {
  kinds.fill(ByteKind::kOther);
  for (size_t byte = 0; byte < 256; ++byte) {
    lower[byte] = static_cast<char>(byte);
    if (byte >= 0x80) continue;
    const int flags = char_flags()[byte] & heeded;
    kinds[byte] = kind_of(flags);
    if (flags & kCapital) lower[byte] = static_cast<char>(text::lower(static_cast<char32_t>(byte)));
  }
}

}  // namespace lockstep::text
