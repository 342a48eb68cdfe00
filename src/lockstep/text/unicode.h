#pragma once
// What BERT's tokenizer asks of a character; scripts/unicode_tables says which Unicode answers.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace lockstep::text {

enum CharFlag : uint8_t {
  kRemoved = 1,      // a control or format character, private use, U+FFFD
  kSpace = 2,        // White_Space
  kPunctuation = 4,  // P, and every sign of ASCII
  kIdeograph = 8,    // a word of its own
  kMark = 16,        // Mn: an accent
  kCombines = 32,    // its combining class is not 0
  kDecomposes = 64,
  kCapital = 128,
};

constexpr char32_t kCodePoints = 0x110000;
constexpr char32_t kCapitalIWithDot = 0x130;  // in lower case the one character that becomes two: i, U+0307

/// The flags of each code point, made when they are first asked for.
const uint8_t* char_flags();

/// Of a character that has kCombines.
uint8_t combining_class(char32_t c);

/// All that a character becomes which has kDecomposes; how many are put there.
size_t decompose(char32_t c, std::array<char32_t, 4>& into);

/// Of a character that has kCapital, but for kCapitalIWithDot.
char32_t lower(char32_t c);

struct Decoded {
  char32_t value;
  uint32_t bytes;
};

/// The first character of a text that is known to be UTF-8.
inline Decoded decode(const char* at) {
  const auto byte = [at](int i) { return static_cast<char32_t>(static_cast<unsigned char>(at[i])); };
  const auto tail = [&](int i) { return byte(i) & 0x3F; };
  if (byte(0) < 0x80) return {byte(0), 1};
  if (byte(0) < 0xE0) return {(byte(0) & 0x1F) << 6 | tail(1), 2};
  if (byte(0) < 0xF0) return {(byte(0) & 0x0F) << 12 | tail(1) << 6 | tail(2), 3};
  return {(byte(0) & 0x07) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3), 4};
}

/// Writes it as UTF-8; how many bytes that took, at most four.
inline size_t encode(char32_t c, char* into) {
  const auto put = [&](int i, char32_t value) { into[i] = static_cast<char>(value); };
  const auto tail = [c](int shift) { return 0x80 | ((c >> shift) & 0x3F); };
  if (c < 0x80) return put(0, c), 1;
  if (c < 0x800) return put(0, 0xC0 | c >> 6), put(1, tail(0)), 2;
  if (c < 0x10000) return put(0, 0xE0 | c >> 12), put(1, tail(6)), put(2, tail(0)), 3;
  return put(0, 0xF0 | c >> 18), put(1, tail(12)), put(2, tail(6)), put(3, tail(0)), 4;
}

/// How many characters a text has that is known to be UTF-8.
size_t count_chars(std::string_view text);

}  // namespace lockstep::text
