#include "lockstep/comm/memory/node_window.h"

#include <algorithm>
#include <utility>

#include "lockstep/comm/memory/bell.h"

namespace lockstep::comm {
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
void NodeWindow::begin(Patience& patience) {
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

void NodeWindow::wait_all(Patience& patience) {
  if (crowd_) sleep_for_crowd();
  for (int rank = 0; rank < size(); ++rank) wait(rank, patience);
}

// Whoever has posted in this turn has named its call before, and names no other in its place until this rank
// has posted in the next one.
void NodeWindow::wait(int local_rank, Patience& patience) {
  wait_for(local_rank, posts_, patience);
  const auto& theirs = head_of(segments_[static_cast<size_t>(local_rank)]).calls[turns_ & 1];
  if (theirs != call_) throw UnlikeCalls{node_.ranks[static_cast<size_t>(local_rank)], theirs};
}

void NodeWindow::wait_for(int local_rank, uint64_t posts, Patience& patience) {
  auto& flag = posts_of(segments_[static_cast<size_t>(local_rank)]);
  if (flag.rung() >= posts) return;
  const auto begin = Clock::now();
  patience.restart(spin_.longest());
  const auto sleep = [&](std::chrono::milliseconds longest) { flag.sleep_until_rung(posts, longest); };
  try {
    while (flag.rung() < posts) patience.turn(node_.ranks[static_cast<size_t>(local_rank)], sleep);
  } catch (const OutOfPatience&) {
    if (flag.rung() < posts) throw;  // it may have posted and then ended
  }
  spin_.waited(Clock::now() - begin);
}

}  // namespace lockstep::comm
