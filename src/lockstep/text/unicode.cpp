#include "lockstep/text/unicode.h"

#include <algorithm>
#include <iterator>
#include <vector>

namespace lockstep::text {
namespace {

struct Range {
  char32_t first, last;
};

struct ClassRange {
  char32_t first, last;
  uint8_t number;
};

struct Decomposition {
  char32_t from, first, second = 0, third = 0, fourth = 0;  // 0 behind the last
};

struct LowerRun {
  char32_t first, last, step;
  int32_t distance;
};

#include "lockstep/text/unicode_tables.inc"

// The blocks that BERT counts as Chinese; kana and Hangul are written in words.
constexpr Range kIdeographRanges[] = {
    {0x3400, 0x4DBF},   {0x4E00, 0x9FFF},   {0xF900, 0xFAFF},   {0x20000, 0x2A6DF},
    {0x2A700, 0x2B73F}, {0x2B740, 0x2B81F}, {0x2B920, 0x2CEAF}, {0x2F800, 0x2FA1F},
};

// The Unicode Standard, 3.12: a syllable is a consonant, a vowel and perhaps a final consonant.
constexpr char32_t kSyllable = 0xAC00, kConsonant = 0x1100, kVowel = 0x1161, kFinal = 0x11A7;
constexpr char32_t kVowels = 21, kFinals = 28, kSyllables = 19 * kVowels * kFinals;

bool is_syllable(char32_t c) {
  return c - kSyllable < kSyllables;
}

using Flags = std::vector<uint8_t>;

void mark(Flags& flags, char32_t first, char32_t last, CharFlag flag, char32_t step = 1) {
  for (char32_t c = first; c <= last; c += step) flags[c] |= flag;
}

template <class Ranges>
void mark_all(Flags& flags, const Ranges& ranges, CharFlag flag) {
  for (const auto& range : ranges) mark(flags, range.first, range.last, flag);
}

Flags make_flags() {
  Flags flags(kCodePoints);
  mark_all(flags, kRemovedRanges, kRemoved);
  mark_all(flags, kSpaceRanges, kSpace);
  mark_all(flags, kPunctuationRanges, kPunctuation);
  mark_all(flags, kIdeographRanges, kIdeograph);
  mark_all(flags, kMarkRanges, kMark);
  mark_all(flags, kClassRanges, kCombines);
  for (const auto& row : kDecompositions) flags[row.from] |= kDecomposes;
  mark(flags, kSyllable, kSyllable + kSyllables - 1, kDecomposes);
  for (const auto& run : kLowerRuns) mark(flags, run.first, run.last, kCapital, run.step);
  flags[kCapitalIWithDot] |= kCapital;
  return flags;
}

// The last row that begins at `c` or before it; there is one for every character that is asked for.
template <class Rows, class First>
const auto& row_of(const Rows& rows, char32_t c, First first) {
  const auto after = std::upper_bound(std::begin(rows), std::end(rows), c,
                                      [&](char32_t value, const auto& row) { return value < first(row); });
  return *std::prev(after);
}

size_t decompose_syllable(char32_t c, std::array<char32_t, 4>& into) {
  const char32_t at = c - kSyllable, final = at % kFinals;
  into = {kConsonant + at / (kVowels * kFinals), kVowel + at % (kVowels * kFinals) / kFinals, kFinal + final};
  return final == 0 ? 2 : 3;
}

}  // namespace

const uint8_t* char_flags() {
  static const Flags flags = make_flags();
  return flags.data();
}

uint8_t combining_class(char32_t c) {
  return row_of(kClassRanges, c, [](const ClassRange& row) { return row.first; }).number;
}

size_t decompose(char32_t c, std::array<char32_t, 4>& into) {
  if (is_syllable(c)) return decompose_syllable(c, into);
  const auto& row = row_of(kDecompositions, c, [](const Decomposition& one) { return one.from; });
  into = {row.first, row.second, row.third, row.fourth};
  return static_cast<size_t>(std::find(into.begin(), into.end(), U'\0') - into.begin());
}

char32_t lower(char32_t c) {
  const auto& run = row_of(kLowerRuns, c, [](const LowerRun& row) { return row.first; });
  return c + static_cast<char32_t>(run.distance);
}

size_t count_chars(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace lockstep::text
