#include "lockstep/text/word_cutter.h"

#include <algorithm>
#include <bitset>
#include <iterator>
#include <limits>
#include <utility>
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

void Pieces::add_token(int32_t id, TokenOffsets offsets) {
  into_.ids.push_back(id);
  into_.offsets.push_back(offsets);
}

// A word that cannot be cut to its end is unknown as a whole.
template <class From>
void Pieces::cut(std::string_view word, From from) {
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

bool Pieces::add(const Word& word) {
  if (word.chars > kLongestWord) {
    add_token(unknown_, {word.first, word.last + 1});
  } else {
    cut({word.bytes.data(), word.size}, [&](size_t byte) { return word.from[byte]; });
  }
  return wants_more();
}

bool Pieces::add_ascii(std::string_view word, uint32_t first) {
  if (word.size() > kLongestWord) {
    add_token(unknown_, {first, first + static_cast<uint32_t>(word.size())});
  } else {
    cut(word, [first](size_t byte) { return first + static_cast<uint32_t>(byte); });
  }
  return wants_more();
}

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

bool WordCutter::cut(std::string_view part) {
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

void WordCutter::take_token(std::string_view part, int32_t id) {
  const auto chars = static_cast<uint32_t>(count_chars(part));
  pieces_.add_token(id, {at_, at_ + chars});
  at_ += chars;
}

const char* WordCutter::cut_ascii(const char* begin, const char* end) {
  const char* const stop =
      std::find_if(begin, end, [&](char byte) { return rules_.kind(byte) != ByteKind::kLetter; });
  if (stop < end && rules_.kind(*stop) == ByteKind::kOther) return cut_any(begin, end);
  const auto size = static_cast<size_t>(stop - begin);
  const char* letters = begin;
  if (rules_.lowers() && size <= kLongestWord) {
    std::transform(begin, stop, word_.bytes.begin(), [&](char byte) { return rules_.lowered(byte); });
    letters = word_.bytes.data();
  }
  more_ = pieces_.add_ascii({letters, size}, at_);
  at_ += static_cast<uint32_t>(size);
  return stop;
}

const char* WordCutter::cut_any(const char* begin, const char* end) {
  const char* at = begin;
  while (more_ && at < end) {
    const ByteKind kind = rules_.kind(*at);
    if (kind == ByteKind::kSpace || kind == ByteKind::kSign) break;
    const auto [value, bytes] = decode(at);
    if (kind == ByteKind::kLetter) {
      end_run();
      push(static_cast<unsigned char>(rules_.lowered(*at)), at_);
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

void WordCutter::take_wide(char32_t c) {
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

void WordCutter::take_decomposed(char32_t c) {
  if (!(char_flags()[c] & kDecomposes)) return take_element(c, true);
  std::array<char32_t, 4> parts;
  const size_t count = decompose(c, parts);
  for (size_t i = 0; i < count; ++i) take_element(parts[i], i == 0);
}

void WordCutter::take_element(char32_t c, bool leads) {
  const int flags = char_flags()[c];
  if (flags & kCombines) {
    run_.push_back({combining_class(c), c, leads, at_, run_.size()});
    run_stays_ |= !(flags & kMark);
    return;
  }
  end_run();
  if (!(flags & kMark)) emit(c, at_);
}

void WordCutter::end_run() {
  if (run_.empty()) return;
  if (run_stays_) emit_run();
  run_.clear();
  run_stays_ = false;
}

// Hugging Face's alignments do not move with the characters that are sorted: the n-th that leads is said to
// come from the n-th character that there was, and one that does not, from where the one before it came.
void WordCutter::emit_run() {
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

void WordCutter::emit(char32_t c, uint32_t from) {
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

void WordCutter::push(char32_t c, uint32_t from) {
  if (word_.chars++ == 0) word_.first = from;
  word_.last = from;
  if (word_.chars > kLongestWord) return;
  const size_t bytes = encode(c, word_.bytes.data() + word_.size);
  std::fill_n(word_.from.begin() + word_.size, bytes, from);
  word_.size += bytes;
}

void WordCutter::end_word() {
  if (word_.chars == 0) return;
  if (more_) more_ = pieces_.add(word_);
  word_.size = word_.chars = 0;
}

/// Gives each node's children a place: 256 cells are a block, and a base never leads out of its own.
class TrieBuilder {
 public:
  TrieBuilder(const std::vector<std::string>& tokens, std::vector<PieceTrie::Cell>& cells)
      : tokens_(tokens), cells_(cells) {
    add_block();
    take(PieceTrie::kRoot, std::numeric_limits<int32_t>::max());
  }

  /// The node's subtree: tokens `first` to `last` of the order begin with the `depth` bytes that led to it.
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
  struct Block {
    int32_t begin;
    int failures = 0;
    std::bitset<256> taken = {};
  };
  static constexpr int kMostFailures = 32;  // then it has no room worth looking for

  const std::string& text(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
  PieceTrie::Cell& cell(int32_t at) { return cells_[static_cast<size_t>(at)]; }

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
    open_.push_back({static_cast<int32_t>(cells_.size())});
    cells_.resize(cells_.size() + 256);
  }

  void take(int32_t at, int32_t parent) {
    cell(at).parent = parent;
    const auto block =
        std::find_if(open_.begin(), open_.end(), [&](const Block& b) { return b.begin == (at & ~255); });
    if (block == open_.end()) return;
    block->taken.set(static_cast<size_t>(at & 255));
    if (block->taken.all()) open_.erase(block);
  }

  static int place_in(const Block& block, const std::vector<Child>& children) {
    for (int slot = 0; slot < 256; ++slot) {
      const int base = slot ^ children.front().byte;
      const auto is_free = [&](const Child& child) {
        return !block.taken[static_cast<size_t>(base ^ child.byte)];
      };
      if (std::all_of(children.begin(), children.end(), is_free)) return base;
    }
    return -1;
  }

  int32_t find_base(const std::vector<Child>& children) {
    for (auto block = open_.begin(); block != open_.end();) {
      const int base = place_in(*block, children);
      if (base >= 0) return block->begin + base;
      block = ++block->failures > kMostFailures ? open_.erase(block) : block + 1;
    }
    add_block();
    return open_.back().begin + place_in(open_.back(), children);
  }

  const std::vector<std::string>& tokens_;
  std::vector<PieceTrie::Cell>& cells_;
  std::vector<Block> open_;
};

PieceTrie::PieceTrie(const std::vector<std::string>& tokens, const std::vector<int32_t>& order) {
  std::vector<int32_t> usable;
  std::copy_if(order.begin(), order.end(), std::back_inserter(usable), [&](int32_t id) {
    const size_t size = tokens[static_cast<size_t>(id)].size();
    return size > 0 && size <= kContinues.size() + kLongestWordBytes;
  });
  TrieBuilder(tokens, cells_).place(kRoot, usable.data(), usable.data() + usable.size(), 0);
  continues_ = walk(kContinues);
}

int32_t PieceTrie::walk(std::string_view path) const {
  int32_t node = kRoot;
  for (const char byte : path) {
    const int32_t next = cells_[static_cast<size_t>(node)].base ^ static_cast<unsigned char>(byte);
    if (cells_[static_cast<size_t>(next)].parent != node) return -1;
    node = next;
  }
  return node;
}

}  // namespace lockstep::text
