#include "tools/doctor/job/pairs.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <sstream>

#include "lockstep/base/format.h"

namespace lockstep::doctor {
namespace {

using Clock = std::chrono::steady_clock;
using Times = std::vector<PairTime>;

constexpr size_t kFewNodes = 8;    // beyond it neighbours alone: the number of lines grows with the square
constexpr size_t kFewRanks = 128;  // of a node
constexpr size_t kSmallMessage = 8, kLargeMessage = 256 << 10;
constexpr int kSmallTrips = 6, kLargeTrips = 8;

// Beyond these a line is an odd one out, or no network of a cluster.
constexpr double kTimesSlower = 8;
constexpr size_t kEnough = 3;           // lines to know what is usual
constexpr double kUsualLatency = 2e-3;  // seconds; a busy core may take as long
constexpr double kUsualSpeed = 200e6;   // bytes a second
constexpr double kEthernet = 125e6;     // 1 Gbit/s

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// The best of the rounds there and back: a rank that is busy elsewhere is not a slow line.
double round_trip(Messenger& messenger, int partner, size_t bytes, int rounds) {
  std::vector<std::byte> data(bytes);
  const bool first = messenger.rank() < partner;
  double best = 1e9;
  for (int round = 0; round <= rounds; ++round) {  // the first one waits for the partner
    const auto begin = Clock::now();
    if (first) messenger.send(partner, data);
    messenger.receive(partner, data);
    if (!first) messenger.send(partner, data);
    if (round > 0) best = std::min(best, since(begin));
  }
  return best;
}

// Everybody with everybody, each once a turn: one stays, the others go round it.
std::vector<Pair> tournament(std::vector<int> ranks) {
  std::vector<Pair> pairs;
  if (ranks.size() % 2 != 0) ranks.push_back(-1);
  const size_t count = ranks.size();
  for (size_t turn = 0; turn + 1 < count; ++turn) {
    for (size_t i = 0; i < count / 2; ++i) {
      const auto [low, high] = std::minmax(ranks[i], ranks[count - 1 - i]);
      if (low >= 0) pairs.emplace_back(low, high);
    }
    std::rotate(ranks.begin() + 1, ranks.end() - 1, ranks.end());
  }
  return pairs;
}

std::vector<Pair> neighbours(const std::vector<int>& ranks) {
  std::vector<Pair> pairs;
  for (size_t start : {size_t{0}, size_t{1}})
    for (size_t i = start; i + 1 < ranks.size(); i += 2) pairs.push_back(std::minmax(ranks[i], ranks[i + 1]));
  pairs.push_back(std::minmax(ranks.front(), ranks.back()));
  return pairs;
}

// So many in order from the smallest.
double at_place(std::vector<double> values, size_t place) {
  std::sort(values.begin(), values.end());
  return values[place];
}

double slowness(const PairTime& time) {
  return time.latency + 1e6 / time.bytes_second;
}

struct Usual {
  double latency = 0, bytes_second = 0;
};

Usual usual_of(const Times& times) {
  std::vector<double> latencies, speeds;
  for (const auto& time : times) {
    latencies.push_back(time.latency);
    speeds.push_back(time.bytes_second);
  }
  // the better of the two in the middle: one rank of four has half of the lines
  return {at_place(latencies, (times.size() - 1) / 2), at_place(speeds, times.size() / 2)};
}

bool is_odd(const PairTime& time, const Usual& usual) {
  const bool late = time.latency > kTimesSlower * usual.latency && time.latency > kUsualLatency;
  return late || (time.bytes_second * kTimesSlower < usual.bytes_second && time.bytes_second < kUsualSpeed);
}

// The one rank that all of them have in common, where there are several; else -1.
int common_rank(const Times& odd) {
  if (odd.size() < 2) return -1;
  for (const int rank : {odd[0].pair.first, odd[0].pair.second}) {
    if (std::all_of(odd.begin(), odd.end(), [&](const PairTime& time) {
          return time.pair.first == rank || time.pair.second == rank;
        }))
      return rank;
  }
  return -1;
}

std::string rank_name(int rank, const std::vector<std::string>& hosts) {
  return format("rank {} ({})", rank, hosts.at(static_cast<size_t>(rank)));
}

std::string line_text(const PairTime& time, const std::vector<std::string>& hosts) {
  return format("{} and {}: {}, {}", rank_name(time.pair.first, hosts), rank_name(time.pair.second, hosts),
                time_text(time.latency), speed_text(time.bytes_second));
}

Finding odd_ones(const Times& odd, const Usual& usual, const std::vector<std::string>& hosts) {
  const auto most = *std::max_element(odd.begin(), odd.end(),
                                      [](const auto& a, const auto& b) { return slowness(a) < slowness(b); });
  const int common = common_rank(odd);
  const auto whose = common >= 0 ? format("all of {}'s lines are slow, such as", rank_name(common, hosts))
                                 : std::string("the slowest line is between");
  return warn(format("{} {}; usual here: {}, {}", whose, line_text(most, hosts), time_text(usual.latency),
                     speed_text(usual.bytes_second)),
              common >= 0 ? "look at that process and its node: is it busy, throttled, or short of memory?"
                          : "look at the cable and the switch between them, or leave one of the nodes out");
}

Finding as_ethernet(const PairTime& slowest, const std::vector<std::string>& hosts) {
  return warn(format("slow between nodes, at worst between {}", line_text(slowest, hosts)),
              "that is 1 Gbit/s Ethernet or less: set GLOO_SOCKET_IFNAME (for MPI its own variable) to the "
              "cluster's fast network, if this is another; else expect training to wait for it");
}

Findings judge_kind(const Times& times, const std::vector<std::string>& hosts) {
  const auto usual = usual_of(times);
  Times odd;
  std::copy_if(times.begin(), times.end(), std::back_inserter(odd),
               [&](const auto& time) { return times.size() >= kEnough && is_odd(time, usual); });
  if (!odd.empty()) return {odd_ones(odd, usual, hosts)};
  const auto& slowest = *std::max_element(
      times.begin(), times.end(), [](const auto& a, const auto& b) { return slowness(a) < slowness(b); });
  const bool slow = slowest.bytes_second < kEthernet || slowest.latency > kTimesSlower * kUsualLatency;
  if (slowest.across && slow) return {as_ethernet(slowest, hosts)};
  return {fine(format("the slowest line {} is between {}", slowest.across ? "between nodes" : "within a node",
                      line_text(slowest, hosts)))};
}

}  // namespace

std::vector<Pair> pairs_to_time(const std::vector<int>& node_of) {
  std::map<int, std::vector<int>> nodes;
  for (size_t rank = 0; rank < node_of.size(); ++rank) nodes[node_of[rank]].push_back(static_cast<int>(rank));
  std::vector<int> leaders;
  for (const auto& [node, ranks] : nodes) leaders.push_back(ranks.front());
  std::vector<Pair> pairs;
  if (leaders.size() > 1) pairs = leaders.size() <= kFewNodes ? tournament(leaders) : neighbours(leaders);
  for (const auto& [node, ranks] : nodes)
    for (size_t i = 1; i < std::min(ranks.size(), kFewRanks); ++i) pairs.emplace_back(ranks[0], ranks[i]);
  return pairs;
}

std::vector<PairTime> time_pairs(Messenger& messenger, const std::vector<Pair>& pairs) {
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

std::string pack(const std::vector<PairTime>& times) {
  std::string text;
  for (const auto& time : times)
    text += format("{} {} {} {} {}\n", time.pair.first, time.pair.second, time.across ? 1 : 0, time.latency,
                   time.bytes_second);
  return text;
}

std::vector<PairTime> unpack_pairs(const std::string& text) {
  std::istringstream lines(text);
  Times times;
  for (PairTime time;
       lines >> time.pair.first >> time.pair.second >> time.across >> time.latency >> time.bytes_second;)
    times.push_back(time);
  return times;
}

Findings judge_pairs(const std::vector<PairTime>& times, const std::vector<std::string>& hosts) {
  Findings findings;
  for (const bool across : {true, false}) {
    Times kind;
    std::copy_if(times.begin(), times.end(), std::back_inserter(kind),
                 [&](const auto& time) { return time.across == across; });
    if (kind.empty()) continue;
    for (auto& finding : judge_kind(kind, hosts)) findings.push_back(std::move(finding));
  }
  return findings;
}

std::string time_text(double seconds) {
  if (seconds >= 1) return format("{:.1f} s", seconds);
  return seconds >= 1e-3 ? format("{:.1f} ms", seconds * 1e3) : format("{:.0f} us", seconds * 1e6);
}

std::string speed_text(double bytes_second) {
  return bytes_second >= 1e9 ? format("{:.1f} GB/s", bytes_second / 1e9)
                             : format("{:.1f} MB/s", bytes_second / 1e6);
}

}  // namespace lockstep::doctor
