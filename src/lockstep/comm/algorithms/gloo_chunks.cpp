#include "lockstep/comm/algorithms/gloo_chunks.h"

#include <algorithm>

namespace lockstep::algorithms {
namespace {

constexpr std::size_t kMessage = 1 << 20;  // at most

std::size_t divide_up(std::size_t all, std::size_t parts) {
  return (all + parts - 1) / parts;
}

std::size_t round_up(std::size_t count, std::size_t multiple) {
  return divide_up(count, multiple) * multiple;
}

std::size_t largest_message(std::size_t item_bytes) {
  return std::max(item_bytes, kMessage / item_bytes * item_bytes);
}

}  // namespace

// Each rank has at least two messages, and each rank's chunk is made of as many.
std::size_t gloo_chunk(std::size_t items, std::size_t item_bytes, int world) {
  const auto ranks = static_cast<std::size_t>(world);
  const std::size_t bytes = items * item_bytes;
  const std::size_t messages =
      round_up(std::max(divide_up(bytes, largest_message(item_bytes)), 2 * ranks), ranks);
  return messages / ranks * divide_up(divide_up(bytes, messages), item_bytes);
}

// Here the length of a message comes first, and their number follows from it.
std::size_t gloo_reduce_chunk(std::size_t items, std::size_t item_bytes, int world) {
  const auto ranks = static_cast<std::size_t>(world);
  const std::size_t bytes = items * item_bytes;
  if (bytes == 0) return 0;
  const std::size_t message =
      round_up(std::min(divide_up(bytes, 2 * ranks), largest_message(item_bytes)), item_bytes);
  const std::size_t messages = round_up(std::max(divide_up(bytes, message), 2 * ranks), ranks);
  return messages / ranks * (message / item_bytes);
}

}  // namespace lockstep::algorithms
