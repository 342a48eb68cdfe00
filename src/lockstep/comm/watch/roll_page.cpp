#include "lockstep/comm/watch/roll_page.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"

namespace lockstep::comm {
namespace {

constexpr size_t kLine = 128;  // two cache lines: neighbours are fetched in pairs
constexpr size_t kTextBytes = 4080;
enum Written : uint32_t { kNothing, kWriting, kWritten };

}  // namespace

struct RollPage::Slot {
  alignas(kLine) std::atomic<uint64_t> begun;
  std::atomic<uint32_t> what;
  std::atomic<uint32_t> present;
  std::atomic<uint32_t> left;
};

struct RollPage::Head {
  alignas(kLine) std::atomic<uint32_t> written;
  std::array<char, kTextBytes> text;
};

size_t RollPage::bytes_for(int world) {
  return sizeof(Head) + static_cast<size_t>(world) * sizeof(Slot);
}

RollPage::RollPage(base::SharedMemory memory, int world) : memory_(std::move(memory)) {
  static_assert(std::atomic<uint64_t>::is_always_lock_free,
                "a lock inside a process means nothing to another");
  if (memory_.size() < bytes_for(world)) throw Error("the roll page is of another world size");
}

RollPage::Head& RollPage::head() const {
  return *static_cast<Head*>(memory_.data());
}

RollPage::Slot& RollPage::slot(int rank) const {
  auto* slots = reinterpret_cast<Slot*>(static_cast<std::byte*>(memory_.data()) + sizeof(Head));
  return slots[rank];
}

void RollPage::enter(int rank) {
  slot(rank).present.store(1, std::memory_order_release);
}
bool RollPage::present(int rank) const {
  return slot(rank).present.load(std::memory_order_acquire) != 0;
}
uint64_t RollPage::begin(int rank, uint32_t what) {
  slot(rank).what.store(what, std::memory_order_relaxed);
  return slot(rank).begun.fetch_add(1, std::memory_order_relaxed) + 1;
}
void RollPage::take_back(int rank) {
  slot(rank).begun.fetch_sub(1, std::memory_order_relaxed);
}
uint64_t RollPage::begun(int rank) const {
  return slot(rank).begun.load(std::memory_order_relaxed);
}
uint32_t RollPage::what(int rank) const {
  return slot(rank).what.load(std::memory_order_relaxed);
}
void RollPage::leave(int rank) {
  slot(rank).left.store(1, std::memory_order_release);
}
bool RollPage::left(int rank) const {
  return slot(rank).left.load(std::memory_order_acquire) != 0;
}

std::string RollPage::agree_on(const std::string& finding) {
  uint32_t nothing = kNothing;
  if (head().written.compare_exchange_strong(nothing, kWriting, std::memory_order_acq_rel)) {
    const size_t bytes = std::min(finding.size(), kTextBytes - 1);
    std::memcpy(head().text.data(), finding.data(), bytes);
    head().text[bytes] = '\0';
    head().written.store(kWritten, std::memory_order_release);
    return finding;
  }
  const std::string first = this->agreed();
  return first.empty() ? finding : first;
}

std::string RollPage::agreed() const {
  // its writer may be in the middle of it, or have been killed there
  for (int i = 0; i < 100 && head().written.load(std::memory_order_acquire) == kWriting; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return head().written.load(std::memory_order_acquire) == kWritten ? head().text.data() : "";
}

}  // namespace lockstep::comm
