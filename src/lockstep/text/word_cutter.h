#pragma once
// BERT's normaliser and pre-tokeniser in one pass: a text's words, each cut into pieces as soon as it ends.
//
// Hugging Face's code takes its steps over the whole text, one after the other: control characters out,
// blanks around ideographs, canonical decomposition (NFD), accents out, lower case; then words between
// blanks, and each punctuation mark a word. What a step does to a character depends on its neighbours in one
// place alone: NFD sorts the combining characters behind a base character by their class.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/text/encoding.h"

namespace lockstep::text {

// The vocabulary as a double array (Aoe, 1989): the longest token that a word begins with, a step a byte.

constexpr size_t kLongestWord = 100;  // characters; a longer word is unknown, as in BERT's code
constexpr size_t kLongestWordBytes = 4 * kLongestWord;
constexpr std::string_view kContinues = "##";  // a token that continues a word begins with this

struct Piece {
  int32_t id = -1;
  size_t bytes = 0;  // 0 = none
};

class PieceTrie {
 public:
  /// `order` are the tokens' numbers in the order of their texts. What no word can hold is left out.
  PieceTrie(const std::vector<std::string>& tokens, const std::vector<int32_t>& order);

  /// The longest token that `rest` begins with; `inside` a word those that go on with one.
  Piece longest(std::string_view rest, bool inside) const {
    int32_t node = inside ? continues_ : kRoot;
    Piece best;
    if (node < 0) return best;
    for (size_t i = 0; i < rest.size(); ++i) {
      const int32_t next = cells_[static_cast<size_t>(node)].base ^ static_cast<unsigned char>(rest[i]);
      const Cell& cell = cells_[static_cast<size_t>(next)];
      if (cell.parent != node) break;
      node = next;
      if (cell.id >= 0) best = {cell.id, i + 1};
    }
    return best;
  }

 private:
  friend class TrieBuilder;
  static constexpr int32_t kRoot = 0;

  // A node's child by a byte is the cell at base ^ byte, if that one calls it its parent.
  struct Cell {
    int32_t base = 0, parent = -1, id = -1;
  };

  int32_t walk(std::string_view path) const;

  std::vector<Cell> cells_;
  int32_t continues_ = -1;
};

// Words cut into the vocabulary's tokens: the longest that fits, again and again (WordPiece).

/// A normalised word, and which character of the text each of its bytes comes from.
struct Word {
  std::array<char, kLongestWordBytes> bytes;
  std::array<uint32_t, kLongestWordBytes> from;
  size_t size = 0;   // bytes; those of a word that is too long are not kept
  size_t chars = 0;  // all of them
  uint32_t first = 0, last = 0;
};

/// Puts the tokens of one text behind those that are there. add() is false once there are `limit` of them.
class Pieces {
 public:
  Pieces(const PieceTrie& trie, int32_t unknown, size_t limit, Encoding& into)
      : trie_(trie), unknown_(unknown), limit_(limit), begin_(into.ids.size()), into_(into) {}

  bool add(const Word& word);
  /// A word of ASCII, of which each byte is a character of the text, from `first` on.
  bool add_ascii(std::string_view word, uint32_t first);
  /// A token that stood in the text as it is.
  void add_token(int32_t id, TokenOffsets offsets);

  size_t count() const { return into_.ids.size() - begin_; }

 private:
  template <class From>
  void cut(std::string_view word, From from);
  bool wants_more() const { return count() < limit_; }

  const PieceTrie& trie_;
  int32_t unknown_;
  size_t limit_, begin_;
  Encoding& into_;
};

// What BERT's tokenizer asks about a character; unicode_tables.inc says which version of Unicode answers.

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

// How a BERT model wants its text normalised, as tables by byte and a mask over a character's flags.

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

class WordCutter {
 public:
  WordCutter(const CharRules& rules, Pieces& pieces) : rules_(rules), pieces_(pieces) {}

  /// The words of the text's next part, known to be UTF-8; false once the pieces are enough.
  bool cut(std::string_view part);
  /// The next part is a token.
  void take_token(std::string_view part, int32_t id);

 private:
  struct Combining {
    uint8_t number;  // its class
    char32_t value;
    bool leads;     // the first of what its character became
    uint32_t from;  // its character
    size_t order;   // among the run's
  };

  // each takes a word or more from `begin` on, and returns where it stopped
  const char* cut_ascii(const char* begin, const char* end);
  const char* cut_any(const char* begin, const char* end);

  void take_wide(char32_t c);
  void take_element(char32_t c, bool leads);
  void take_decomposed(char32_t c);
  void emit(char32_t c, uint32_t from);
  void push(char32_t c, uint32_t from);
  void emit_run();
  void end_run();
  void end_word();

  const CharRules& rules_;
  Pieces& pieces_;
  uint32_t at_ = 0;  // the number of the next character
  bool more_ = true;
  Word word_;
  std::vector<Combining> run_;  // what combines with one base character
  bool run_stays_ = false;      // not all of it is accents
};

}  // namespace lockstep::text
