#include "lockstep/comm/memory/node_blocks.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"

namespace lockstep::comm {
namespace {

constexpr size_t kMostBlocks = 64;  // a bit each
constexpr int kOffsetBits = 48;     // as many as an address has
using Name = std::array<char, 128>;

// What a rank shows the others before a block is chosen.
struct Want {
  uint64_t bytes;
  uint64_t free_blocks;
  uint64_t room;
};

uint64_t room_in_shared_memory() {
  struct statvfs facts {};
  return ::statvfs("/dev/shm", &facts) == 0 ? uint64_t{facts.f_bavail} * facts.f_frsize : 0;
}

std::optional<base::SharedMemory> create(size_t bytes) {
  try {
    return base::SharedMemory::create(bytes);
  } catch (const Error&) {
    return std::nullopt;  // the room went between the look and the taking
  }
}

Name name_to_send(const std::optional<base::SharedMemory>& memory) {
  Name name{};
  if (memory) memory->name().copy(name.data(), name.size() - 1);
  return name;
}

bool is_unused(const std::shared_ptr<NodeBlock>& block) {
  if (block.use_count() != 1) return false;
  std::atomic_thread_fence(std::memory_order_acquire);  // after what its last user did with it
  return true;
}

void tell_of_room(const NodeWindow& window, uint64_t wanted, uint64_t room) {
  if (window.rank() != 0) return;
  log::warning(format(
      "gradients take a slower way: they want {} MB of shared memory on this node, and /dev/shm has {} "
      "MB free, of which half may be taken",
      wanted >> 20, room >> 20));
}

}  // namespace

uint64_t NodeBlocks::free_here() const {
  uint64_t bits = 0;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i] && is_unused(blocks_[i])) bits |= uint64_t{1} << i;
  }
  return bits;
}

std::shared_ptr<NodeBlock> NodeBlocks::take(size_t bytes, BoundedWait& patience) {
  if (window_.size() == 1) return nullptr;  // one's own memory does as well
  const auto wants = window_.exchange(Want{bytes, free_here(), room_in_shared_memory()}, patience);
  uint64_t free_everywhere = ~uint64_t{0}, room = ~uint64_t{0};
  for (const auto& want : wants) {
    if (want.bytes != bytes) return nullptr;
    free_everywhere &= want.free_blocks;
    room = std::min(room, want.room);
  }
  std::shared_ptr<NodeBlock>* best = nullptr;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (!(free_everywhere >> i & 1)) continue;
    if (blocks_[i]->bytes() < bytes) {
      blocks_[i].reset();  // of a smaller model, or of fewer buckets
    } else if (!best || blocks_[i]->bytes() < (*best)->bytes()) {
      best = &blocks_[i];
    }
  }
  if (best) return *best;
  const uint64_t wanted = bytes * wants.size();
  if (wanted <= room / 2) return make(bytes, patience);
  tell_of_room(window_, wanted, room);
  return nullptr;
}

// Every rank makes its own piece, which so lies in its own memory node, and opens the others'.
std::shared_ptr<NodeBlock> NodeBlocks::make(size_t bytes, BoundedWait& patience) {
  const auto gap = std::find(blocks_.begin(), blocks_.end(), nullptr);
  if (gap == blocks_.end() && blocks_.size() == kMostBlocks) return nullptr;
  std::vector<std::optional<base::SharedMemory>> pieces(static_cast<size_t>(window_.size()));
  auto& own = pieces[static_cast<size_t>(window_.rank())];
  own = create(bytes);
  const auto names = window_.exchange(name_to_send(own), patience);
  for (size_t rank = 0; rank < pieces.size(); ++rank) {
    const std::string name = names[rank].data();
    if (!pieces[rank] && !name.empty()) pieces[rank] = base::SharedMemory::open(name);
  }
  const auto is_there = [](const auto& piece) { return piece.has_value(); };
  const int whole = std::all_of(pieces.begin(), pieces.end(), is_there) ? 1 : 0;
  const auto all_whole = window_.exchange(whole, patience);
  if (own) own->unlink();
  if (std::find(all_whole.begin(), all_whole.end(), 0) != all_whole.end()) return nullptr;
  auto block = std::make_shared<NodeBlock>();
  for (auto& piece : pieces) block->pieces.push_back(std::move(*piece));
  if (gap != blocks_.end()) return *gap = block;
  return blocks_.emplace_back(block);
}

NodeBlocks::Place NodeBlocks::find(const std::byte* data, size_t bytes) const {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (!blocks_[i]) continue;
    const std::byte* begin = blocks_[i]->piece(window_.rank());
    if (data < begin || data + bytes > begin + blocks_[i]->bytes()) continue;
    const auto offset = static_cast<size_t>(data - begin);
    return {blocks_[i].get(), offset, (i + 1) << kOffsetBits | offset};
  }
  return {};
}

}  // namespace lockstep::comm
