#pragma once
// Words cut into the vocabulary's tokens: the longest that fits, again and again (WordPiece).

#include <array>
#include <string_view>

#include "lockstep/text/encoding.h"
#include "lockstep/text/piece_trie.h"

namespace lockstep::text {

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

}  // namespace lockstep::text
