#include "lockstep/comm/watch/findings.h"

#include <algorithm>

#include "lockstep/base/fault_json.h"

namespace lockstep::comm {
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
