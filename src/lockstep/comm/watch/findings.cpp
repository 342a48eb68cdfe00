#include "lockstep/comm/watch/findings.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"

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

RankState rank_state(ProcessState process, bool left, uint64_t begun, uint64_t number, bool timed_out) {
  if (left && (number == 0 || begun < number)) return RankState::left;
  if (process == ProcessState::gone) return RankState::died;
  if (!timed_out) return RankState::good;
  if (process == ProcessState::stopped) return RankState::stopped;
  return begun < number ? RankState::late : RankState::good;
}

const StateWords& words_for(RankState state) {
  static constexpr StateWords words[] = {
      {"is well", "are well", ", at", Code::failed},
      {"left the group", "left the group", " after", Code::rank_lost},
      {"has died (its process is gone)", "have died (their processes are gone)", ", at", Code::rank_lost},
      {"is stopped (SIGSTOP?)", "are stopped (SIGSTOP?)", ", at", Code::rank_late},
      {"did not come, it is", "did not come, they are", " at", Code::rank_late}};
  return words[static_cast<size_t>(state)];  // in the order of RankState
}

ProcessState process_state(int pid) {
  if (::kill(pid, 0) != 0 && errno == ESRCH) return ProcessState::gone;
  std::ifstream file(format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(file, line)) return ::kill(pid, 0) == 0 ? ProcessState::running : ProcessState::gone;
  // the state is the field after the command, which is in parentheses and may hold any character
  const size_t end = line.rfind(')');
  const char state = end == std::string::npos || end + 2 >= line.size() ? '?' : line[end + 2];
  if (state == 'Z' || state == 'X') return ProcessState::gone;
  return state == 'T' || state == 't' ? ProcessState::stopped : ProcessState::running;
}

namespace {

constexpr size_t kMostRanks = 32, kMostSeen = 8, kMostStateBytes = 150;  // as data: a page is short

bool same_but_for_rank(const RankCall& a, const RankCall& b) {
  return a.call == b.call && a.number == b.number && a.state == b.state;
}

// One rank of each kind first, or the one that is elsewhere might be left out.
std::vector<RankCall> most_telling(const std::vector<RankCall>& all) {
  std::vector<RankCall> kinds, rest;
  for (const auto& seen : all) {
    const auto is_same = [&](const RankCall& kind) { return same_but_for_rank(kind, seen); };
    (std::ranges::none_of(kinds, is_same) ? kinds : rest).push_back(seen);
  }
  kinds.insert(kinds.end(), rest.begin(), rest.end());
  kinds.resize(std::min(kinds.size(), kMostSeen));
  std::ranges::sort(kinds, {}, &RankCall::rank);
  for (auto& seen : kinds) {
    seen.call.resize(std::min(seen.call.size(), kMostStateBytes));
    seen.state.resize(std::min(seen.state.size(), kMostStateBytes));
  }
  return kinds;
}

}  // namespace

bool is_any(const Fault& found) {
  return !found.what.empty();
}

void add(Fault& found, const Fault& more) {
  if (!is_any(more)) return;
  if (!is_any(found) || more.code == Code::rank_lost) found.code = more.code;
  found.what += (is_any(found) ? "; " : "") + more.what;
  found.ranks.insert(found.ranks.end(), more.ranks.begin(), more.ranks.end());
  found.seen.insert(found.seen.end(), more.seen.begin(), more.seen.end());
}

Fault finding(const std::vector<Peer>& peers, Code code, const std::string& what, RankCall like) {
  Fault found{.code = code, .what = what};
  for (const auto& peer : peers) {
    like.rank = peer.rank_in_job();
    found.ranks.push_back(like.rank);
    found.seen.push_back(like);
  }
  return found;
}

std::string packed(const Fault& found) {
  if (!is_any(found)) return "";
  Fault data{.code = found.code, .ranks = found.ranks, .seen = most_telling(found.seen)};
  data.ranks.resize(std::min(data.ranks.size(), kMostRanks));
  auto json = base::to_json(data);
  for (const char* words : {"what", "where", "hint"}) json.erase(words);
  return base::as_line(json) + "\n" + found.what;
}

Fault unpacked(const std::string& text) {
  const auto end = text.find('\n');
  auto found = end == std::string::npos ? std::nullopt : base::fault_in(text.substr(0, end));
  if (!found) return {};
  found->what = text.substr(end + 1);
  return std::move(*found);
}

}  // namespace lockstep::comm
