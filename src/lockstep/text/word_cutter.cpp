#include "lockstep/text/word_cutter.h"

#include <algorithm>
#include <array>
#include <bitset>
#include <iterator>
#include <limits>
#include <numeric>

namespace lockstep::text {
namespace {

// What BERT's tokenizer asks about a character; a test compares the tables with the tokenizers package.

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

// The flags of each code point, made when they are first asked for.
const uint8_t* char_flags() {
  static const Flags flags = make_flags();
  return flags.data();
}

// Of a character that has kCombines.
uint8_t combining_class(char32_t c) {
  return row_of(kClassRanges, c, [](const ClassRange& row) { return row.first; }).number;
}

// All that a character becomes which has kDecomposes; how many are put there.
size_t decompose(char32_t c, std::array<char32_t, 4>& into) {
  if (c - kSyllable < kSyllables) return decompose_syllable(c, into);
  const auto& row = row_of(kDecompositions, c, [](const Decomposition& one) { return one.from; });
  into = {row.first, row.second, row.third, row.fourth};
  return static_cast<size_t>(std::find(into.begin(), into.end(), U'\0') - into.begin());
}

// Of a character that has kCapital, but for kCapitalIWithDot.
char32_t lower(char32_t c) {
  const auto& run = row_of(kLowerRuns, c, [](const LowerRun& row) { return row.first; });
  return c + static_cast<char32_t>(run.distance);
}

struct CodePoint {
  char32_t value;
  uint32_t bytes;
};

/// The first character of a text that is known to be UTF-8.
CodePoint decode(const char* at) {
  const auto byte = [at](int i) { return static_cast<char32_t>(static_cast<unsigned char>(at[i])); };
  const auto tail = [&](int i) { return byte(i) & 0x3F; };
  if (byte(0) < 0x80) return {byte(0), 1};
  if (byte(0) < 0xE0) return {(byte(0) & 0x1F) << 6 | tail(1), 2};
  if (byte(0) < 0xF0) return {(byte(0) & 0x0F) << 12 | tail(1) << 6 | tail(2), 3};
  return {(byte(0) & 0x07) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3), 4};
}

/// Writes it as UTF-8; how many bytes that took, at most four.
size_t encode(char32_t c, char* into) {
  const auto put = [&](int i, char32_t value) { into[i] = static_cast<char>(value); };
  const auto tail = [c](int shift) { return 0x80 | ((c >> shift) & 0x3F); };
  if (c < 0x80) return put(0, c), 1;
  if (c < 0x800) return put(0, 0xC0 | c >> 6), put(1, tail(0)), 2;
  if (c < 0x10000) return put(0, 0xE0 | c >> 12), put(1, tail(6)), put(2, tail(0)), 3;
  return put(0, 0xF0 | c >> 18), put(1, tail(12)), put(2, tail(6)), put(3, tail(0)), 4;
}

// The vocabulary as a double array (Aoe, 1989): the longest token that a word begins with, a step a byte.

constexpr size_t kLongestWordBytes = 4 * kLongestWord;

struct Piece {
  int32_t id = -1;
  size_t bytes = 0;  // 0 = none
};

// A node's child by a byte is the cell at base ^ byte, if that one calls it its parent.
struct Cell {
  int32_t base = 0, parent = -1, id = -1;
};

constexpr int32_t kRoot = 0;

// Gives each node's children a place: 256 cells are a block, and a base never leads out of its own.
class TrieBuilder {
 public:
  TrieBuilder(const std::vector<std::string>& tokens, std::vector<Cell>& cells)
      : tokens_(tokens), cells_(cells) {
    add_block();
    take(kRoot, std::numeric_limits<int32_t>::max());
  }

  // The node's subtree: tokens `first` to `last` of the order begin with the `depth` bytes that led to it.
  void place(int32_t node, const int32_t* first, const int32_t* last, size_t depth) {
    if (first != last && text(*first).size() == depth) cell(node).id = *first++;
    if (first == last) return;
    const auto children = split(first, last, depth);
    const int32_t base = find_base(children);
    cell(node).base = base;
    for (const Child& child : children) take(base ^ child.byte, node);
    for (const Child& child : children) place(base ^ child.byte, child.first, child.last, depth + 1);
  }

 private:
  struct Child {
    unsigned char byte;
    const int32_t *first, *last;
  };
  static constexpr size_t kTried = 2;  // blocks that are searched, the last ones: the others are full

  const std::string& text(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
  Cell& cell(int32_t at) { return cells_[static_cast<size_t>(at)]; }

  std::vector<Child> split(const int32_t* first, const int32_t* last, size_t depth) const {
    std::vector<Child> children;
    while (first != last) {
      const char byte = text(*first)[depth];
      const int32_t* end = std::find_if(first, last, [&](int32_t id) { return text(id)[depth] != byte; });
      children.push_back({static_cast<unsigned char>(byte), first, end});
      first = end;
    }
    return children;
  }

  void add_block() {
    taken_.emplace_back();
    cells_.resize(cells_.size() + 256);
  }

  void take(int32_t at, int32_t parent) {
    cell(at).parent = parent;
    taken_[static_cast<size_t>(at >> 8)].set(static_cast<size_t>(at & 255));
  }

  static int32_t place_in(const std::bitset<256>& taken, const std::vector<Child>& children) {
    for (int32_t slot = 0; slot < 256; ++slot) {
      const int32_t base = slot ^ children.front().byte;
      const auto is_free = [&](const Child& child) { return !taken[static_cast<size_t>(base ^ child.byte)]; };
      if (std::all_of(children.begin(), children.end(), is_free)) return base;
    }
    return -1;
  }

  int32_t find_base(const std::vector<Child>& children) {
    for (size_t block = taken_.size() - std::min(taken_.size(), kTried);; ++block) {
      if (block == taken_.size()) add_block();
      const int32_t base = place_in(taken_[block], children);
      if (base >= 0) return static_cast<int32_t>(block << 8) + base;
    }
  }

  const std::vector<std::string>& tokens_;
  std::vector<Cell>& cells_;
  std::vector<std::bitset<256>> taken_;  // of each block
};

class PieceTrie {
 public:
  // What no word can hold is left out.
  explicit PieceTrie(const std::vector<std::string>& tokens) {
    const auto text = [&](int32_t id) -> const std::string& { return tokens[static_cast<size_t>(id)]; };
    std::vector<int32_t> order(tokens.size());
    std::iota(order.begin(), order.end(), 0);
    std::erase_if(order, [&](int32_t id) {
      return text(id).empty() || text(id).size() > kContinues.size() + kLongestWordBytes;
    });
    std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return text(a) < text(b); });
    TrieBuilder(tokens, cells_).place(kRoot, order.data(), order.data() + order.size(), 0);
    continues_ = walk(kContinues);
  }

  // The longest token that `rest` begins with; `inside` a word those that go on with one.
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
  int32_t walk(std::string_view path) const {
    int32_t node = kRoot;
    for (const char byte : path) {
      const int32_t next = cells_[static_cast<size_t>(node)].base ^ static_cast<unsigned char>(byte);
      if (cells_[static_cast<size_t>(next)].parent != node) return -1;
      node = next;
    }
    return node;
  }

  std::vector<Cell> cells_;
  int32_t continues_ = -1;
};

// Words cut into the vocabulary's tokens: the longest that fits, again and again (WordPiece).

// A normalized word, and which character of the text each of its bytes comes from.
struct Word {
  std::array<char, kLongestWordBytes> bytes;
  std::array<uint32_t, kLongestWordBytes> from;
  size_t size = 0;   // bytes; those of a word that is too long are not kept
  size_t chars = 0;  // all of them
  uint32_t first = 0, last = 0;
};

// Appends the tokens of one text. add() is false once there are `limit` of them.
class Pieces {
 public:
  Pieces(const PieceTrie& trie, int32_t unknown, size_t limit, Encoding& into)
      : trie_(trie), unknown_(unknown), limit_(limit), begin_(into.ids.size()), into_(into) {}

  bool add(const Word& word) {
    if (word.chars > kLongestWord) {
      add_token(unknown_, {word.first, word.last + 1});
    } else {
      cut({word.bytes.data(), word.size}, [&](size_t byte) { return word.from[byte]; });
    }
    return count() < limit_;
  }

  // A word of ASCII, of which each byte is a character of the text, from `first` on.
  bool add_ascii(std::string_view word, uint32_t first) {
    if (word.size() > kLongestWord) {
      add_token(unknown_, {first, first + static_cast<uint32_t>(word.size())});
    } else {
      cut(word, [first](size_t byte) { return first + static_cast<uint32_t>(byte); });
    }
    return count() < limit_;
  }

  // A token that stood in the text as it is.
  void add_token(int32_t id, TokenOffsets offsets) {
    into_.ids.push_back(id);
    into_.offsets.push_back(offsets);
  }

  size_t count() const { return into_.ids.size() - begin_; }

 private:
  // A word that cannot be cut to its end is unknown as a whole.
  template <class From>
  void cut(std::string_view word, From from) {
    const size_t before = into_.ids.size();
    for (size_t at = 0; at < word.size();) {
      const Piece piece = trie_.longest(word.substr(at), at > 0);
      if (piece.bytes == 0) {
        into_.ids.resize(before);
        into_.offsets.resize(before);
        return add_token(unknown_, {from(0), from(word.size() - 1) + 1});
      }
      add_token(piece.id, {from(at), from(at + piece.bytes - 1) + 1});
      at += piece.bytes;
    }
  }

  const PieceTrie& trie_;
  int32_t unknown_;
  size_t limit_, begin_;
  Encoding& into_;
};

// How a BERT model wants its text normalized, as tables by byte and a mask over a character's flags.

enum class ByteKind : uint8_t { kLetter, kSpace, kSign, kOther };  // kOther: what the quick way cannot do

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

struct CharRules {
  explicit CharRules(const NormalizerOptions& options) : heeded(heeded_flags(options)) {
    kinds.fill(ByteKind::kOther);
    for (size_t byte = 0; byte < 0x80; ++byte) {
      const int flags = char_flags()[byte] & heeded;
      const auto c = static_cast<char32_t>(byte);
      kinds[byte] = kind_of(flags);
      lowered[byte] = static_cast<char>(flags & kCapital ? lower(c) : c);
    }
  }

  ByteKind kind(char byte) const { return kinds[static_cast<unsigned char>(byte)]; }

  uint8_t heeded;  // the flags that matter here
  std::array<ByteKind, 256> kinds;
  std::array<char, 128> lowered;  // ASCII; the same byte where case stays
};

class SpecialFinder {
 public:
  struct Match {
    size_t at, size;
    int32_t id;
  };

  explicit SpecialFinder(SpecialTokens tokens) : tokens_(std::move(tokens)) {
    std::stable_sort(tokens_.begin(), tokens_.end(),
                     [](const auto& a, const auto& b) { return a.first.size() > b.first.size(); });
    for (const auto& [token, id] : tokens_)
      if (leads_.find(token[0]) == std::string::npos) leads_ += token[0];
  }

  // The next one from `from` on; the longest where several begin at one place.
  std::optional<Match> next(std::string_view text, size_t from) const {
    const auto lead = [&](size_t at) {  // of one byte it is memchr, which is quick
      return leads_.size() == 1 ? text.find(leads_[0], at) : text.find_first_of(leads_, at);
    };
    for (size_t at = lead(from); at != std::string_view::npos; at = lead(at + 1)) {
      for (const auto& [token, id] : tokens_)
        if (text.substr(at).starts_with(token)) return Match{at, token.size(), id};
    }
    return std::nullopt;
  }

 private:
  SpecialTokens tokens_;  // longer ones first
  std::string leads_;     // their first bytes
};

class TextCutter {
 public:
  TextCutter(const CharRules& rules, Pieces& pieces) : rules_(rules), pieces_(pieces) {}

  // The words of the text's next part, known to be UTF-8; false once the pieces are enough.
  bool cut(std::string_view part) {
    const char* at = part.data();
    const char* const end = at + part.size();
    while (more_ && at < end) {
      const ByteKind kind = rules_.kind(*at);
      if (kind == ByteKind::kLetter || kind == ByteKind::kOther) {
        at = cut_ascii(at, end);
        continue;
      }
      if (kind == ByteKind::kSign) more_ = pieces_.add_ascii({at, 1}, at_);
      ++at, ++at_;
    }
    return more_;
  }

  void take_token(std::string_view part, int32_t id) {
    const auto chars = static_cast<uint32_t>(std::count_if(
        part.begin(), part.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
    pieces_.add_token(id, {at_, at_ + chars});
    at_ += chars;
  }

 private:
  struct Combining {
    uint8_t number;  // its class
    char32_t value;
    bool leads;     // the first of what its character became
    uint32_t from;  // its character
    size_t order;   // among the run's
  };

  // cut_ascii() and cut_any() take a word or more from `begin` on, and return where they stopped.

  const char* cut_ascii(const char* begin, const char* end) {
    const char* const stop =
        std::find_if(begin, end, [&](char byte) { return rules_.kind(byte) != ByteKind::kLetter; });
    if (stop < end && rules_.kind(*stop) == ByteKind::kOther) return cut_any(begin, end);
    const auto size = static_cast<size_t>(stop - begin);
    const char* letters = begin;
    if (rules_.heeded & kCapital && size <= kLongestWord) {
      std::transform(begin, stop, word_.bytes.begin(),
                     [&](char byte) { return rules_.lowered[static_cast<unsigned char>(byte)]; });
      letters = word_.bytes.data();
    }
    more_ = pieces_.add_ascii({letters, size}, at_);
    at_ += static_cast<uint32_t>(size);
    return stop;
  }

  const char* cut_any(const char* begin, const char* end) {
    const char* at = begin;
    while (more_ && at < end) {
      const ByteKind kind = rules_.kind(*at);
      if (kind == ByteKind::kSpace || kind == ByteKind::kSign) break;
      const auto [value, bytes] = decode(at);
      if (kind == ByteKind::kLetter) {
        end_run();
        push(static_cast<unsigned char>(rules_.lowered[static_cast<unsigned char>(*at)]), at_);
      } else {
        take_wide(value);
      }
      at += bytes;
      ++at_;
    }
    end_run();
    end_word();
    return at;
  }

  void take_wide(char32_t c) {
    const int flags = char_flags()[c] & rules_.heeded;
    if (flags & kRemoved) return;
    const bool apart = flags & (kSpace | kIdeograph);
    if (apart) end_run(), end_word();
    if (flags & kSpace) return;
    if (flags & (kDecomposes | kCombines | kMark)) {
      take_decomposed(c);
    } else {
      end_run();
      emit(c, at_);
    }
    if (apart) end_run(), end_word();
  }

  void take_decomposed(char32_t c) {
    if (!(char_flags()[c] & kDecomposes)) return take_element(c, true);
    std::array<char32_t, 4> parts;
    const size_t count = decompose(c, parts);
    for (size_t i = 0; i < count; ++i) take_element(parts[i], i == 0);
  }

  void take_element(char32_t c, bool leads) {
    const int flags = char_flags()[c];
    if (flags & kCombines) {
      run_.push_back({combining_class(c), c, leads, at_, run_.size()});
      run_stays_ |= !(flags & kMark);
      return;
    }
    end_run();
    if (!(flags & kMark)) emit(c, at_);
  }

  void end_run() {
    if (run_.empty()) return;
    if (run_stays_) emit_run();
    run_.clear();
    run_stays_ = false;
  }

  // Hugging Face's alignments do not move with the characters that are sorted: the n-th that leads is said to
  // come from the n-th character that there was, and one that does not, from where the one before it came.
  void emit_run() {
    std::vector<uint32_t> places;
    for (const Combining& element : run_)
      if (element.leads) places.push_back(element.from);
    std::sort(run_.begin(), run_.end(), [](const Combining& a, const Combining& b) {
      return std::pair(a.number, a.order) < std::pair(b.number, b.order);
    });
    uint32_t from = run_.front().from;
    auto place = places.begin();
    for (const Combining& element : run_) {
      if (element.leads) from = *place++;
      if (!(char_flags()[element.value] & kMark)) emit(element.value, from);
    }
  }

  void emit(char32_t c, uint32_t from) {
    const int flags = char_flags()[c] & rules_.heeded;
    if (flags & kPunctuation) {
      end_word();
      push(c, from);
      return end_word();
    }
    if (!(flags & kCapital)) return push(c, from);
    if (c != kCapitalIWithDot) return push(lower(c), from);
    push('i', from);
    push(U'\u0307', from);
  }

  void push(char32_t c, uint32_t from) {
    if (word_.chars++ == 0) word_.first = from;
    word_.last = from;
    if (word_.chars > kLongestWord) return;
    const size_t bytes = encode(c, word_.bytes.data() + word_.size);
    std::fill_n(word_.from.begin() + word_.size, bytes, from);
    word_.size += bytes;
  }

  void end_word() {
    if (word_.chars == 0) return;
    if (more_) more_ = pieces_.add(word_);
    word_.size = word_.chars = 0;
  }

  const CharRules& rules_;
  Pieces& pieces_;
  uint32_t at_ = 0;  // the number of the next character
  bool more_ = true;
  Word word_;
  std::vector<Combining> run_;  // what combines with one base character
  bool run_stays_ = false;      // not all of it is accents
};

}  // namespace

struct WordCutter::Parts {
  PieceTrie trie;
  CharRules rules;
  SpecialFinder specials;
  int32_t unknown;
};

WordCutter::WordCutter(const std::vector<std::string>& tokens, SpecialTokens specials, int32_t unknown,
                       const NormalizerOptions& options)
    : parts_(new Parts{PieceTrie(tokens), CharRules(options), SpecialFinder(std::move(specials)), unknown}) {}
WordCutter::~WordCutter() = default;
WordCutter::WordCutter(WordCutter&&) noexcept = default;

size_t WordCutter::cut(std::string_view text, size_t limit, Encoding& into) const {
  Pieces pieces(parts_->trie, parts_->unknown, limit, into);
  TextCutter cutter(parts_->rules, pieces);
  for (size_t at = 0;;) {
    const auto special = parts_->specials.next(text, at);
    const size_t end = special ? special->at : text.size();
    if (!cutter.cut(text.substr(at, end - at)) || !special) return pieces.count();
    cutter.take_token(text.substr(end, special->size), special->id);
    at = end + special->size;
  }
}

// As Hugging Face's reader does, which takes every kind of blank away from a line's end.
std::string_view without_blanks(std::string_view line) {
  while (!line.empty()) {
    size_t last = line.size() - 1;
    while (last > 0 && (static_cast<unsigned char>(line[last]) & 0xC0) == 0x80) --last;
    if (!(char_flags()[decode(line.data() + last).value] & kSpace)) break;
    line = line.substr(0, last);
  }
  return line;
}

}  // namespace lockstep::text
