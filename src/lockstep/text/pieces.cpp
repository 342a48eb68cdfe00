#include "lockstep/text/pieces.h"

namespace lockstep::text {

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

}  // namespace lockstep::text
