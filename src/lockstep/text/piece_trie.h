#pragma once
// The vocabulary as a double array (Aoe, 1989): the longest token that a word begins with, a step a byte.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::text {

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

}  // namespace lockstep::text
