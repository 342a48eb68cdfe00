#include "lockstep/comm/watch/findings.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"

namespace lockstep::comm {
namespace {

constexpr size_t kTextBytes = 16368;
enum Written : uint32_t { kNothing, kWriting, kWritten };

constexpr size_t kMostRanks = 32, kMostStateBytes = 150;  // as data; the words name the rest

}  // namespace

struct RollPage::Head {
  alignas(128) std::atomic<uint32_t> written;
  std::array<char, kTextBytes> text;
};

size_t RollPage::bytes_for(int world) {
  return sizeof(Head) + static_cast<size_t>(world) * sizeof(Rank);
}

RollPage::RollPage(base::SharedMemory memory, int world) : memory_(std::move(memory)) {
  static_assert(std::atomic<uint64_t>::is_always_lock_free,
                "a lock inside a process means nothing to another");
  if (memory_.size() < bytes_for(world)) throw Error("the roll page is of another world size");
}

RollPage::Head& RollPage::head() const {
  return *static_cast<Head*>(memory_.data());
}

RollPage::Rank& RollPage::of(int rank) const {
  return reinterpret_cast<Rank*>(static_cast<std::byte*>(memory_.data()) + sizeof(Head))[rank];
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
  Fault data{.code = found.code, .ranks = found.ranks, .seen = found.seen};
  data.ranks.resize(std::min(data.ranks.size(), kMostRanks));
  data.seen.resize(std::min(data.seen.size(), kMostRanks));
  for (auto& seen : data.seen) {
    seen.call.resize(std::min(seen.call.size(), kMostStateBytes));
    seen.state.resize(std::min(seen.state.size(), kMostStateBytes));
  }
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
