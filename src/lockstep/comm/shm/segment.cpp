#include "lockstep/comm/shm/segment.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <climits>
#include <ctime>
#include <optional>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/comm/watch/calls.h"

namespace lockstep::comm {
namespace {

// "all-reduce (sum) of 40 bytes of Float"
std::string in_words(const CallWord& word) {
  std::string text = op_name(word.type);
  if (word.reduction >= 0) text += of_sum(static_cast<c10d::ReduceOp::RedOpType>(word.reduction));
  if (word.root >= 0) text += of_root(word.root);
  return word.bytes == 0 ? text : text + format(" of {} bytes of {}", word.bytes, c10::toString(word.scalar));
}

}  // namespace

Difference difference_to(const CallMismatch& mismatch, int rank, const CallWord& own) {
  const bool first = rank < mismatch.rank;
  const auto [low, high] = std::minmax(rank, mismatch.rank);
  const auto& of_low = first ? own : mismatch.theirs;
  const auto& of_high = first ? mismatch.theirs : own;
  const auto words_low = in_words(of_low), words_high = in_words(of_high);
  std::vector<RankCall> calls = {{.rank = low, .call = op_name(of_low.type)},
                                 {.rank = high, .call = op_name(of_high.type)}};
  if (words_low == words_high)
    return {format("the ranks' calls differ: ranks {} and {} call {} with different types or sizes", low,
                   high, words_low),
            std::move(calls)};
  return {format("the ranks' calls differ: rank {} calls {}, but rank {} calls {}", low, words_low, high,
                 words_high),
          std::move(calls)};
}

void copy_in_pieces(const std::byte* from, std::byte* to, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kPiece) std::memcpy(to + at, from + at, std::min(kPiece, bytes - at));
}

void copy_into_slot(std::byte* slot, const std::byte* from, size_t bytes) {
  for (size_t at = 0; at < bytes; at += kPiece) {
    const size_t now = std::min(kPiece, bytes - at), next = at + now;
    fetch_to_write(slot + next, std::min(kPiece, bytes - next));
    std::memcpy(slot + at, from + at, now);
  }
}

namespace shm {

Block map_block(size_t bytes, const NodeRanks& node, const ExchangeTexts& exchange) {
  std::vector<std::optional<base::SharedMemory>> pieces(node.ranks.size());
  auto& own = pieces[static_cast<size_t>(node.own)];
  std::string why;
  try {
    own = base::SharedMemory::create(bytes);  // by each rank, so that it is in that rank's NUMA node
  } catch (const Error& error) {
    why = format("rank {}: {} ({})", node.ranks[static_cast<size_t>(node.own)], error.what(), error.where());
  }
  const auto names = exchange(own ? own->name() : "");
  for (size_t place = 0; place < pieces.size() && why.empty(); ++place) {
    if (pieces[place] || names[place].empty()) continue;
    pieces[place] = base::SharedMemory::open(names[place]);
    if (!pieces[place])
      why = format("rank {} cannot see the shared memory of rank {}, though both are on this node",
                   node.ranks[static_cast<size_t>(node.own)], node.ranks[place]);
  }
  const auto all = exchange(why);
  if (own) own->unlink();
  const auto failed = std::find_if(all.begin(), all.end(), [](const auto& text) { return !text.empty(); });
  if (failed != all.end()) return {{}, *failed};
  Block block;
  for (auto& piece : pieces) block.pieces.push_back(std::move(*piece));
  return block;
}

namespace {

using Clock = std::chrono::steady_clock;

/// A counter in shared memory that processes can wait for. Zeroed memory is a counter at 0.
class Counter {
 public:
  uint64_t value() const { return value_.load(std::memory_order_acquire); }
  /// For a counter that one process writes. A rank that sees the new value sees all earlier writes.
  void set(uint64_t value) {
    // the store must come before the load: otherwise a process that is about to sleep is not woken
    value_.store(value, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) wake();
  }
  /// For a counter that `ranks` processes add to equally often: who completes a round wakes the others.
  void add_one(uint64_t ranks) {
    const uint64_t value = value_.fetch_add(1, std::memory_order_seq_cst) + 1;
    if (value % ranks == 0 && sleepers_.load(std::memory_order_seq_cst) != 0) wake();
  }
  /// Returns at `value`, after `longest`, or earlier.
  void sleep_until(uint64_t value, std::chrono::milliseconds longest) {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const uint64_t seen = value_.load(std::memory_order_seq_cst);
    if (seen < value) {
      const timespec limit{.tv_sec = longest.count() / 1000, .tv_nsec = longest.count() % 1000 * 1'000'000};
      // not FUTEX_PRIVATE_FLAG: the sleeper is another process
      ::syscall(SYS_futex, word(), FUTEX_WAIT, static_cast<uint32_t>(seen), &limit, nullptr, 0);
    }
    sleepers_.fetch_sub(1, std::memory_order_seq_cst);
  }
  /// Spins, then sleeps. Returns whether it reached `value` before `deadline`.
  bool reaches(uint64_t value, Clock::time_point deadline, Spin spin) {
    while (this->value() < value) {
      if (spin.again()) continue;
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      if (left.count() <= 0) return this->value() >= value;
      sleep_until(value, left);
    }
    return true;
  }

 private:
  // The futex call compares 32 bits: the lower half, which changes with each step.
  uint32_t* word() {
    return reinterpret_cast<uint32_t*>(&value_) + (std::endian::native == std::endian::big ? 1 : 0);
  }
  void wake() { ::syscall(SYS_futex, word(), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0); }

  std::atomic<uint64_t> value_{0};
  std::atomic<uint32_t> sleepers_{0};
};
static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

// Processors fetch cache lines in pairs.
constexpr size_t kLines = 128;
// The slots begin on a page.
constexpr size_t kHeadBytes = 4096;
// How long to wait for a late rank; shorter each time it is late.
constexpr std::chrono::microseconds kLongestArrival{5000}, kShortestArrival{150};
// After that the wait for each rank checks whether it has died.
constexpr std::chrono::milliseconds kLongestCrowdSleep{20};

}  // namespace

// The begin of a piece, before the slots. A rank writes to its own; all add to the first's crowd counters.
struct Segment::Head {
  alignas(kLines) Counter posts;
  // in the lines of the counter
  CallWord calls[2];      // of the last two turns
  std::atomic<int> core;  // where the rank last arrived or posted
  alignas(kLines) Counter arrivals;
  alignas(kLines) Counter crowd_posts;
  alignas(kLines) Counter crowd_arrivals;
};

size_t Segment::bytes_for(size_t slot_bytes) {
  static_assert(sizeof(Head) <= kHeadBytes && sizeof(Head) == 4 * kLines);
  return kHeadBytes + 2 * slot_bytes;
}

Segment::Segment(Block block, NodeRanks node, size_t slot_bytes)
    : block_(std::move(block)),
      node_(std::move(node)),
      slot_bytes_(slot_bytes),
      longest_arrival_(kLongestArrival) {}

Segment::Head& Segment::head(int local_rank) const {
  return *reinterpret_cast<Head*>(block_.piece(local_rank));
}

std::byte* Segment::slot(int local_rank) const {
  return block_.piece(local_rank) + kHeadBytes + (turns_ & 1) * slot_bytes_;
}

void Segment::arrive() {
  head(rank()).core.store(::sched_getcpu(), std::memory_order_relaxed);
  head(rank()).arrivals.set(++arrivals_);
  if (!crowd_) return;
  ++crowd_arrivals_;
  head(0).crowd_arrivals.add_one(node_.ranks.size());
}

bool Segment::all_arrived() {
  const auto all = [&](const auto& arrived) {
    for (int rank = 0; rank < size(); ++rank)
      if (!arrived(head(rank).arrivals)) return false;
    return true;
  };
  if (all([&](Counter& counter) { return counter.value() >= arrivals_; })) return true;
  const auto begin = Clock::now(), end = begin + longest_arrival_;
  const Spin spin(crowd_, longest_spin());
  if (crowd_) head(0).crowd_arrivals.reaches(crowd_arrivals_ * node_.ranks.size(), end, spin);
  const bool arrived = all([&](Counter& counter) { return counter.reaches(arrivals_, end, spin); });
  spin_.waited(Clock::now() - begin);
  longest_arrival_ = arrived ? kLongestArrival : std::max(kShortestArrival, longest_arrival_ / 2);
  return arrived;
}

// This slot was last used two turns ago. A rank that has posted in the turn before has read all of it.
void Segment::begin(BoundedWait& wait) {
  for (int rank = 0; rank < size(); ++rank) wait_for(rank, turn_before_, wait);
  turn_before_ = posts_ + 1;
  ++turns_;
  head(rank()).calls[turns_ & 1] = call_;
}

void Segment::post() {
  head(rank()).core.store(::sched_getcpu(), std::memory_order_relaxed);
  head(rank()).posts.set(++posts_);
  if (!crowd_) return;
  ++crowd_posts_;
  head(0).crowd_posts.add_one(node_.ranks.size());
}

// The common counter shows the progress of all ranks together. One rank may be ahead, as the root of a
// broadcast is, so this still waits for each rank.
void Segment::wait_all(BoundedWait& wait) {
  if (crowd_)
    head(0).crowd_posts.reaches(crowd_posts_ * node_.ranks.size(), Clock::now() + kLongestCrowdSleep,
                                {true, longest_spin()});
  for (int rank = 0; rank < size(); ++rank) this->wait(rank, wait);
}

// A rank that has posted in this turn has written its call before. It cannot overwrite it until this rank has
// posted in the next turn.
void Segment::wait(int local_rank, BoundedWait& wait) {
  wait_for(local_rank, posts_, wait);
  const auto& theirs = head(local_rank).calls[turns_ & 1];
  if (theirs != call_) throw CallMismatch{node_.ranks[static_cast<size_t>(local_rank)], theirs};
}

// A rank that spins delays the others on its core. Other work may have moved them there.
std::chrono::nanoseconds Segment::longest_spin() {
  if (!crowd_ && std::exchange(looked_at_, posts_) != posts_) {
    const int core = ::sched_getcpu();
    shares_core_ = false;
    for (int other = 0; other < size(); ++other)
      shares_core_ |= other != rank() && head(other).core.load(std::memory_order_relaxed) == core;
  }
  return shares_core_ ? std::chrono::nanoseconds(0) : spin_.longest();
}

void Segment::wait_for(int local_rank, uint64_t posts, BoundedWait& wait) {
  auto& counter = head(local_rank).posts;
  if (counter.value() >= posts) return;
  const auto begin = Clock::now();
  wait.restart(longest_spin());
  const auto sleep = [&](std::chrono::milliseconds longest) { counter.sleep_until(posts, longest); };
  try {
    while (counter.value() < posts) wait.turn(node_.ranks[static_cast<size_t>(local_rank)], sleep);
  } catch (const WaitExpired&) {
    if (counter.value() < posts) throw;  // it may have posted and then ended
  }
  spin_.waited(Clock::now() - begin);
}

namespace {

uint64_t free_shared_memory() {
  struct statvfs facts {};
  return ::statvfs("/dev/shm", &facts) == 0 ? uint64_t{facts.f_bavail} * facts.f_frsize : 0;
}

}  // namespace

std::shared_ptr<Block> TensorBlocks::take(const NodeRanks& node, size_t bytes, BoundedWait& wait) {
  if (segment_.size() == 1) return nullptr;  // its own memory is as good
  for (const uint64_t theirs : segment_.exchange(uint64_t{bytes}, wait))
    if (theirs != bytes) return nullptr;
  // now no rank maps the block that this one replaces
  const auto rooms = segment_.exchange(free_shared_memory(), wait);
  const uint64_t room = *std::min_element(rooms.begin(), rooms.end());
  const uint64_t wanted = bytes * node.ranks.size();
  if (wanted > room / 2) {
    if (segment_.rank() == 0)
      log::warning(
          format("gradients are summed more slowly: they need {} MB of shared memory on this node, and "
                 "/dev/shm has {} "
                 "MB free, of which lockstep uses at most half",
                 wanted >> 20, room >> 20));
    return nullptr;
  }
  const auto exchange = [&](const std::string& own) {
    std::array<char, 256> row{};
    own.copy(row.data(), row.size() - 1);
    std::vector<std::string> texts;
    for (const auto& theirs : segment_.exchange(row, wait)) texts.emplace_back(theirs.data());
    return texts;
  };
  auto block = std::make_shared<Block>(map_block(bytes, node, exchange));
  if (block->pieces.empty()) return nullptr;
  std::erase_if(blocks_, [](const auto& known) { return known.second.expired(); });
  blocks_.emplace_back(++made_, block);
  return block;
}

TensorBlocks::Place TensorBlocks::find(const std::byte* data, size_t bytes) const {
  constexpr int kOffsetBits = 48;  // the bits of an address
  for (const auto& [number, known] : blocks_) {
    auto block = known.lock();
    if (!block) continue;
    const std::byte* begin = block->piece(segment_.rank());
    if (data < begin || data + bytes > begin + block->bytes()) continue;
    const auto offset = static_cast<size_t>(data - begin);
    return {std::move(block), offset, number << kOffsetBits | offset};
  }
  return {};
}

}  // namespace shm
}  // namespace lockstep::comm
