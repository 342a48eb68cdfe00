// Pairs of ranks, timed over any backend of CPUs: the slowest, and those that are much slower than the
// others.
#include "tools/doctor/measure.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "lockstep/base/format.h"
#include "tools/doctor/session.h"

namespace lockstep::doctor {
namespace {

using Clock = std::chrono::steady_clock;
using Times = std::vector<PairTime>;

constexpr size_t kAllPairs = 8;      // nodes; beyond it neighbours only, as pairs grow with the square
constexpr size_t kTimedRanks = 128;  // of a node
constexpr size_t kSmallMessage = 8, kLargeMessage = 256 << 10;
constexpr int kSmallTrips = 6, kLargeTrips = 8;
constexpr double kTimesSlower = 8;      // than the others: an outlier
constexpr size_t kEnough = 3;           // pairs, to know what is usual
constexpr double kUsualLatency = 2e-3;  // seconds; a busy core may take as long
constexpr double kUsualSpeed = 200e6;   // bytes a second
constexpr double kEthernet = 125e6;     // 1 Gbit/s

// The best of several: a rank that was busy for a moment is not a slow connection.
double round_trip(Messenger& messenger, int partner, size_t bytes, int trips) {
  std::vector<std::byte> data(bytes);
  const bool first = messenger.rank() < partner;
  double best = 1e9;
  for (int trip = 0; trip <= trips; ++trip) {  // the first one waits for the partner
    const auto begin = Clock::now();
    if (first) messenger.send(partner, data);
    messenger.receive(partner, data);
    if (!first) messenger.send(partner, data);
    if (trip > 0) best = std::min(best, std::chrono::duration<double>(Clock::now() - begin).count());
  }
  return best;
}

// Round robin: one rank stays, the others rotate.
std::vector<Pair> all_pairs(std::vector<int> ranks) {
  std::vector<Pair> pairs;
  if (ranks.size() % 2 != 0) ranks.push_back(-1);
  for (size_t turn = 0; turn + 1 < ranks.size(); ++turn) {
    for (size_t i = 0; i < ranks.size() / 2; ++i) {
      const auto [low, high] = std::minmax(ranks[i], ranks[ranks.size() - 1 - i]);
      if (low >= 0) pairs.emplace_back(low, high);
    }
    std::rotate(ranks.begin() + 1, ranks.end() - 1, ranks.end());
  }
  return pairs;
}

std::vector<Pair> neighbours(const std::vector<int>& ranks) {
  std::vector<Pair> pairs;
  for (const size_t start : {size_t{0}, size_t{1}})
    for (size_t i = start; i + 1 < ranks.size(); i += 2) pairs.push_back(std::minmax(ranks[i], ranks[i + 1]));
  pairs.push_back(std::minmax(ranks.front(), ranks.back()));
  return pairs;
}

double slowness(const PairTime& time) {
  return time.latency + 1e6 / time.bytes_second;
}

struct Usual {
  double latency = 0, bytes_second = 0;
};

// The better of the two in the middle: one rank of four is in half of the pairs.
Usual usual_of(Times times) {
  std::ranges::sort(times, {}, &PairTime::latency);
  const double latency = times[(times.size() - 1) / 2].latency;
  std::ranges::sort(times, {}, &PairTime::bytes_second);
  return {latency, times[times.size() / 2].bytes_second};
}

bool is_outlier(const PairTime& time, const Usual& usual) {
  const bool late = time.latency > kTimesSlower * usual.latency && time.latency > kUsualLatency;
  return late || (time.bytes_second * kTimesSlower < usual.bytes_second && time.bytes_second < kUsualSpeed);
}

// The rank that all of several pairs have in common; else -1.
int common_rank(const Times& times) {
  if (times.size() < 2) return -1;
  for (const int rank : {times[0].pair.first, times[0].pair.second})
    if (std::ranges::all_of(
            times, [&](const PairTime& time) { return time.pair.first == rank || time.pair.second == rank; }))
      return rank;
  return -1;
}

std::string rank_text(int rank, const std::vector<std::string>& hosts) {
  return format("rank {} ({})", rank, hosts.at(static_cast<size_t>(rank)));
}

std::string pair_text(const PairTime& time, const std::vector<std::string>& hosts) {
  return format("{} and {}: {}, {}", rank_text(time.pair.first, hosts), rank_text(time.pair.second, hosts),
                time_text(time.latency), speed_text(time.bytes_second));
}

Finding finding_of(const Times& times, const std::vector<std::string>& hosts) {
  const auto usual = usual_of(times);
  Times outliers;
  if (times.size() >= kEnough)
    std::ranges::copy_if(times, std::back_inserter(outliers),
                         [&](const PairTime& time) { return is_outlier(time, usual); });
  const auto slowest = *std::ranges::max_element(outliers.empty() ? times : outliers, {}, slowness);
  const auto text = pair_text(slowest, hosts);
  const auto usually =
      format("; usual here: {}, {}", time_text(usual.latency), speed_text(usual.bytes_second));
  if (const int common = common_rank(outliers); common >= 0)
    return warning(
        format("all connections of {} are slow, for example {}{}", rank_text(common, hosts), text, usually),
        "look at that process and its node: is it busy, throttled, or short of memory?");
  if (!outliers.empty())
    return warning(format("the slowest connection is between {}{}", text, usually),
                   "look at the cable and the switch between them, or leave one of the nodes out");
  if (slowest.across && (slowest.bytes_second < kEthernet || slowest.latency > kTimesSlower * kUsualLatency))
    return warning(
        format("slow between nodes, at worst between {}", text),
        "that is 1 Gbit/s Ethernet or less: set GLOO_SOCKET_IFNAME (for MPI its own variable) to the "
        "cluster's fast network, if there is another; else expect training to wait for it");
  return ok(format("the slowest connection {} is between {}",
                   slowest.across ? "between nodes" : "within a node", text));
}

}  // namespace

std::vector<Pair> pairs_to_time(const std::vector<int>& node_of) {
  std::map<int, std::vector<int>> nodes;
  for (size_t rank = 0; rank < node_of.size(); ++rank) nodes[node_of[rank]].push_back(static_cast<int>(rank));
  std::vector<int> leaders;
  for (const auto& [node, ranks] : nodes) leaders.push_back(ranks.front());
  std::vector<Pair> pairs;
  if (leaders.size() > 1) pairs = leaders.size() <= kAllPairs ? all_pairs(leaders) : neighbours(leaders);
  for (const auto& [node, ranks] : nodes)
    for (size_t i = 1; i < std::min(ranks.size(), kTimedRanks); ++i) pairs.emplace_back(ranks[0], ranks[i]);
  return pairs;
}

Times time_pairs(Messenger& messenger, const std::vector<Pair>& pairs) {
  Times times;
  const int rank = messenger.rank();
  for (const auto& pair : pairs) {
    if (pair.first != rank && pair.second != rank) continue;
    const int partner = pair.first == rank ? pair.second : pair.first;
    const double small = round_trip(messenger, partner, kSmallMessage, kSmallTrips);
    const double large = round_trip(messenger, partner, kLargeMessage, kLargeTrips);
    if (pair.first == rank)
      times.push_back({pair, messenger.node_of(pair.first) != messenger.node_of(pair.second), small / 2,
                       2.0 * kLargeMessage / large});
  }
  return times;
}

Findings pair_findings(const Times& times, const std::vector<std::string>& hosts) {
  Findings findings;
  for (const bool across : {true, false}) {
    Times kind;
    std::ranges::copy_if(times, std::back_inserter(kind),
                         [&](const PairTime& time) { return time.across == across; });
    if (!kind.empty()) findings.push_back(finding_of(kind, hosts));
  }
  return findings;
}

}  // namespace lockstep::doctor
