#include "lockstep/comm/memory/node_window.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstring>
#include <ctime>
#include <optional>
#include <random>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/files/pack.h"
#include "lockstep/base/format.h"
#include "lockstep/comm/watch/message.h"

namespace lockstep::comm {
namespace {

// A counter in memory that processes share, for which others can sleep.

/// One process rings, or several together. Whoever waits may look (a load) or sleep; the ringer makes a
/// system call only when somebody sleeps.
class Bell {
 public:
  uint64_t rung() const { return rung_.load(std::memory_order_acquire); }
  /// What was written before is seen by all who have heard it.
  void ring(uint64_t count) {
    // the store and the load must not change places: else one who is about to sleep would be overlooked
    rung_.store(count, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) != 0) wake();
  }
  /// In place of ring(), of a bell that `ringers` processes ring as often as each other: the one that makes
  /// their count even wakes who sleeps for that.
  void ring_with(uint64_t ringers) {
    const uint64_t count = rung_.fetch_add(1, std::memory_order_seq_cst) + 1;
    if (count % ringers == 0 && sleepers_.load(std::memory_order_seq_cst) != 0) wake();
  }
  /// Returns when `count` has been rung, after `longest`, or for no reason.
  void sleep_until_rung(uint64_t count, std::chrono::milliseconds longest);

 private:
  uint32_t* word();
  void wake();

  std::atomic<uint64_t> rung_{0};
  std::atomic<uint32_t> sleepers_{0};
};

static_assert(std::atomic<uint64_t>::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

// The kernel compares 32 bits: the lower half of the counter, which changes with each ring.
uint32_t* Bell::word() {
  return reinterpret_cast<uint32_t*>(&rung_) + (std::endian::native == std::endian::big ? 1 : 0);
}

// Not FUTEX_PRIVATE_FLAG: the sleeper is another process.
void Bell::sleep_until_rung(uint64_t count, std::chrono::milliseconds longest) {
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  const uint64_t seen = rung_.load(std::memory_order_seq_cst);
  if (seen < count) {
    const timespec limit{.tv_sec = longest.count() / 1000, .tv_nsec = longest.count() % 1000 * 1'000'000};
    ::syscall(SYS_futex, word(), FUTEX_WAIT, static_cast<uint32_t>(seen), &limit, nullptr, 0);
  }
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

void Bell::wake() {
  ::syscall(SYS_futex, word(), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

using Memory = std::optional<base::SharedMemory>;

std::string fresh_mark() {
  std::random_device device;
  std::string mark;
  while (mark.size() < kMarkBytes) mark += format("{:08x}", device());
  return mark;
}

std::byte* mark_in(const base::SharedMemory& memory) {
  return static_cast<std::byte*>(memory.data()) + memory.size() - kMarkBytes;
}

// Names alone prove nothing: two containers may each have a piece of that name.
Memory open_marked(const std::string& name, const std::string& mark) {
  auto memory = base::SharedMemory::open(name);
  if (!memory || memory->size() < mark.size()) return std::nullopt;
  return std::memcmp(mark_in(*memory), mark.data(), mark.size()) == 0 ? std::move(memory) : std::nullopt;
}

// The name and the mark of this rank's piece, or why there is none.
std::vector<std::string> make_piece(Memory& own, size_t bytes) {
  try {
    own = base::SharedMemory::create(bytes);
  } catch (const Error& error) {
    return {format("{} ({})", error.what(), error.where())};
  }
  const std::string mark = fresh_mark();
  std::memcpy(mark_in(*own), mark.data(), mark.size());
  return {own->name(), mark};
}

}  // namespace

// The first collects, so that the store is asked a few times a rank, however many there are.
std::vector<std::string> exchange(c10d::Store& store, const std::string& stage, const NodeRanks& node,
                                  const std::string& own) {
  const auto key = [&](int rank) { return format("{}/{}", stage, rank); };
  const std::string all = stage + "/all";
  if (node.own != 0) {
    store.set(key(node.ranks[static_cast<size_t>(node.own)]), own);
    return base::unpack_texts(store.get_to_str(all));
  }
  std::vector<std::string> texts = {own};
  for (size_t place = 1; place < node.ranks.size(); ++place)
    texts.push_back(store.get_to_str(key(node.ranks[place])));
  store.set(all, base::pack_texts(texts));
  return texts;
}

NodeMemory share_memory(c10d::Store& store, const std::string& stage, const NodeRanks& node, size_t bytes) {
  std::vector<Memory> pieces(node.ranks.size());
  Memory& own = pieces[static_cast<size_t>(node.own)];
  const auto made = exchange(store, stage + "/piece", node, base::pack_texts(make_piece(own, bytes)));
  std::string why;
  for (size_t place = 0; place < pieces.size() && why.empty(); ++place) {
    const auto words = base::unpack_texts(made[place]);
    if (words.size() < 2) {
      why = format("rank {}: {}", node.ranks[place], words.at(0));
    } else if (!pieces[place] && !(pieces[place] = open_marked(words[0], words[1]))) {
      why = format("rank {} does not see the shared memory of rank {}, though both are on this node",
                   node.ranks[static_cast<size_t>(node.own)], node.ranks[place]);
    }
  }
  const auto all = exchange(store, stage + "/open", node, why);
  if (own) own->unlink();
  const auto failed = std::find_if(all.begin(), all.end(), [](const auto& text) { return !text.empty(); });
  if (failed != all.end()) return {{}, *failed};
  NodeMemory memory;
  for (auto& piece : pieces) memory.pieces.push_back(std::move(*piece));
  return memory;
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

namespace {

// Before the slots, which begin on a page. A counter has 128 bytes to itself: processors fetch cache lines in
// pairs.
constexpr size_t kHeadBytes = 4096;
constexpr size_t kLines = 128;
// One that is always late costs the others less and less.
constexpr std::chrono::microseconds kLongestArrival{5000}, kShortestArrival{150};
// Then somebody may have died, which is found out by waiting for each.
constexpr std::chrono::milliseconds kLongestCrowdSleep{20};

// What a rank writes and all read, in one line: a counter of its posts, and what the calls of its last two
// turns are. Memory that is zero holds counters that nobody has rung.
struct Head {
  Bell posts;
  CallWord calls[2];
};
static_assert(sizeof(Head) <= kLines);

Head& head_of(std::byte* segment) {
  return *reinterpret_cast<Head*>(segment);
}
Bell& posts_of(std::byte* segment) {
  return head_of(segment).posts;
}
Bell& arrivals_of(std::byte* segment) {
  return *reinterpret_cast<Bell*>(segment + kLines);
}

// Of all ranks together, in the first one's piece.
Bell& crowd_posts_of(std::byte* first) {
  return *reinterpret_cast<Bell*>(first + 2 * kLines);
}
Bell& crowd_arrivals_of(std::byte* first) {
  return *reinterpret_cast<Bell*>(first + 3 * kLines);
}

using Clock = std::chrono::steady_clock;

// Until `deadline`; spins first.
bool has_rung(Bell& bell, uint64_t count, Clock::time_point deadline, Spin spin) {
  while (bell.rung() < count) {
    if (spin.again()) continue;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return bell.rung() >= count;
    bell.sleep_until_rung(count, left);
  }
  return true;
}

}  // namespace

size_t NodeWindow::bytes_for(size_t slot_bytes) {
  return kHeadBytes + 2 * slot_bytes + kMarkBytes;
}

NodeWindow::NodeWindow(NodeMemory memory, NodeRanks node, size_t slot_bytes)
    : memory_(std::move(memory)),
      node_(std::move(node)),
      slot_bytes_(slot_bytes),
      arrival_patience_(kLongestArrival) {
  for (const auto& piece : memory_.pieces) segments_.push_back(static_cast<std::byte*>(piece.data()));
}

void NodeWindow::arrive() {
  arrivals_of(segments_[static_cast<size_t>(rank())]).ring(++arrivals_);
  if (!crowd_) return;
  ++crowd_arrivals_;
  crowd_arrivals_of(segments_[0]).ring_with(segments_.size());
}

bool NodeWindow::all_arrived() {
  const auto arrived = [&](std::byte* segment) { return arrivals_of(segment).rung() >= arrivals_; };
  if (std::all_of(segments_.begin(), segments_.end(), arrived)) return true;
  const auto begin = Clock::now(), end = begin + arrival_patience_;
  const Spin spin(crowd_, spin_.longest());
  if (crowd_) has_rung(crowd_arrivals_of(segments_[0]), crowd_arrivals_ * segments_.size(), end, spin);
  const bool all = std::all_of(segments_.begin(), segments_.end(), [&](std::byte* segment) {
    return has_rung(arrivals_of(segment), arrivals_, end, spin);
  });
  spin_.waited(Clock::now() - begin);
  arrival_patience_ = all ? kLongestArrival : std::max(kShortestArrival, arrival_patience_ / 2);
  return all;
}

std::byte* NodeWindow::slot(int local_rank) const {
  return segments_[static_cast<size_t>(local_rank)] + kHeadBytes + (turns_ & 1) * slot_bytes_;
}

// A slot was last used two turns ago. A rank that has posted in the turn before has read all of that.
void NodeWindow::begin(BoundedWait& patience) {
  for (int rank = 0; rank < size(); ++rank) wait_for(rank, turn_before_, patience);
  turn_before_ = posts_ + 1;
  ++turns_;
  head_of(segments_[static_cast<size_t>(rank())]).calls[turns_ & 1] = call_;
}

void NodeWindow::post() {
  posts_of(segments_[static_cast<size_t>(rank())]).ring(++posts_);
  if (!crowd_) return;
  ++crowd_posts_;
  crowd_posts_of(segments_[0]).ring_with(segments_.size());
}

// As often as all have posted together this rank would have if they were even. One may be ahead, as the root
// of a broadcast is, so this says nothing of the others yet.
void NodeWindow::sleep_for_crowd() {
  has_rung(crowd_posts_of(segments_[0]), crowd_posts_ * segments_.size(), Clock::now() + kLongestCrowdSleep,
           {true, spin_.longest()});
}

void NodeWindow::wait_all(BoundedWait& patience) {
  if (crowd_) sleep_for_crowd();
  for (int rank = 0; rank < size(); ++rank) wait(rank, patience);
}

// Whoever has posted in this turn has named its call before, and names no other in its place until this rank
// has posted in the next one.
void NodeWindow::wait(int local_rank, BoundedWait& patience) {
  wait_for(local_rank, posts_, patience);
  const auto& theirs = head_of(segments_[static_cast<size_t>(local_rank)]).calls[turns_ & 1];
  if (theirs != call_) throw UnlikeCalls{node_.ranks[static_cast<size_t>(local_rank)], theirs};
}

void NodeWindow::wait_for(int local_rank, uint64_t posts, BoundedWait& patience) {
  auto& flag = posts_of(segments_[static_cast<size_t>(local_rank)]);
  if (flag.rung() >= posts) return;
  const auto begin = Clock::now();
  patience.restart(spin_.longest());
  const auto sleep = [&](std::chrono::milliseconds longest) { flag.sleep_until_rung(posts, longest); };
  try {
    while (flag.rung() < posts) patience.turn(node_.ranks[static_cast<size_t>(local_rank)], sleep);
  } catch (const WaitExpired&) {
    if (flag.rung() < posts) throw;  // it may have posted and then ended
  }
  spin_.waited(Clock::now() - begin);
}

}  // namespace lockstep::comm
