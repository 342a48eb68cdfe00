#include "lockstep/comm/memory/call_word.h"

#include <algorithm>

#include "lockstep/base/format.h"
#include "lockstep/comm/watch/op_names.h"

namespace lockstep::comm {
namespace {

constexpr int kNone = 0xff;

uint64_t at(int value, int place) {
  return static_cast<uint64_t>(static_cast<uint32_t>(value)) << place;
}

int byte_of(uint64_t what, int place) {
  return static_cast<int>(what >> place & 0xff);
}

// "all-reduce"
std::string operation(const CallWord& word) {
  return op_name(static_cast<c10d::OpType>(byte_of(word.what, 0)));
}

}  // namespace

CallWord word_of(c10d::OpType type, int reduction, int root, c10::ScalarType scalar, size_t bytes) {
  const int op = reduction < 0 ? kNone : reduction;
  return {
      .what = at(static_cast<int>(type), 0) | at(op, 8) | at(static_cast<int>(scalar), 16) | at(root + 1, 32),
      .bytes = bytes};
}

std::string in_words(const CallWord& word) {
  std::string text = operation(word);
  const int op = byte_of(word.what, 8), root = static_cast<int>(word.what >> 32) - 1;
  if (op != kNone) text += of_sum(static_cast<c10d::ReduceOp::RedOpType>(op));
  if (root >= 0) text += of_root(root);
  if (word.bytes == 0) return text;
  return text + format(" of {} bytes of {}", word.bytes,
                       c10::toString(static_cast<c10::ScalarType>(byte_of(word.what, 16))));
}

Difference difference_to(const UnlikeCalls& unlike, int rank, const CallWord& own) {
  const bool first = rank < unlike.rank;
  const auto [low, high] = std::minmax(rank, unlike.rank);
  const auto& of_low = first ? own : unlike.theirs;
  const auto& of_high = first ? unlike.theirs : own;
  std::vector<RankCall> calls = {{.rank = low, .call = operation(of_low)},
                                 {.rank = high, .call = operation(of_high)}};
  if (own.what == unlike.theirs.what && own.bytes == unlike.theirs.bytes)
    return {format("the ranks' calls differ: rank {} and rank {}: {}, of tensors of other types or sizes",
                   low, high, in_words(own)),
            std::move(calls)};
  return {format("the ranks' calls differ: rank {}: {}; rank {}: {}", low, in_words(of_low), high,
                 in_words(of_high)),
          std::move(calls)};
}

}  // namespace lockstep::comm
