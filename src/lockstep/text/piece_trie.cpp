#include "lockstep/text/piece_trie.h"

#include <algorithm>
#include <bitset>
#include <limits>

namespace lockstep::text {

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
