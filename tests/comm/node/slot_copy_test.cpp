#include "lockstep/comm/memory/node_window.h"

#include <gtest/gtest.h>

#include <vector>

namespace lockstep::comm {
namespace {

TEST(SlotCopy, CopiesEachByteAndNoOther) {
  constexpr size_t kMost = 2 * kPiece + 300, kAround = 128;
  std::vector<std::byte> from(kMost + kAround);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * 7 + i / 256 + 1);
  for (const size_t bytes : {size_t{0}, size_t{1}, kPiece - 1, kPiece, kPiece + 1, 2 * kPiece + 1, kMost})
    for (const size_t to : {0, 1, 16, 63, 64})
      for (const size_t away : {0, 5, 64}) {
        std::vector<std::byte> slot(kMost + 2 * kAround);
        copy_into_slot(slot.data() + to, from.data() + away, bytes);
        for (size_t i = 0; i < slot.size(); ++i) {
          const bool inside = i >= to && i < to + bytes;
          ASSERT_EQ(slot[i], inside ? from[away + i - to] : std::byte{0})
              << bytes << " " << to << " " << away << " " << i;
        }
      }
}

}  // namespace
}  // namespace lockstep::comm
