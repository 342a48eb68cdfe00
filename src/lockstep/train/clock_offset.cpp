#include "lockstep/train/clock_offset.h"

#include <algorithm>
#include <limits>
#include <sstream>

#include "lockstep/base/format.h"

namespace lockstep::train {
namespace {

constexpr int kRounds = 16;

struct Round {
  int64_t before = 0, after = 0;
};

std::string measured(const Team& team, const Tracer& tracer) {
  team.barrier();  // they start together, so that few of the rounds are spent waiting
  std::string text;
  std::vector<double> nothing{0};
  for (int i = 0; i < kRounds; ++i) {
    const auto before = tracer.now();
    team.sum(nothing);
    text += format("{} {}\n", before, tracer.now());
  }
  return text;
}

std::vector<Round> rounds_in(const std::string& text) {
  std::istringstream lines(text);
  std::vector<Round> rounds(kRounds);
  for (auto& [before, after] : rounds) lines >> before >> after;
  return rounds;
}

// Nobody leaves a sum before everybody has come: the rank's `after` is no earlier than rank 0's `before`, and
// the other way round. As with NTP the quickest exchanges bound the offset most tightly; it lies in the
// middle.
ClockReading compare(const std::vector<Round>& first, const std::vector<Round>& rank) {
  double most = std::numeric_limits<double>::infinity(), least = -most;
  for (size_t i = 0; i < rank.size(); ++i) {
    most = std::min(most, static_cast<double>(rank[i].after - first[i].before));
    least = std::max(least, static_cast<double>(rank[i].before - first[i].after));
  }
  return {rank.back().after, (most + least) / 2, (most - least) / 2};
}

}  // namespace

std::vector<ClockReading> compare_clocks(const Team& team, const Tracer& tracer) {
  const auto texts = team.all_gather(measured(team, tracer));
  const auto first = rounds_in(texts[0]);
  std::vector<ClockReading> readings = {{first.back().after, 0, 0}};
  for (size_t rank = 1; rank < texts.size(); ++rank)
    readings.push_back(compare(first, rounds_in(texts[rank])));
  return readings;
}

double aligned(int64_t moment, const ClockReading& first, const ClockReading& last) {
  const auto between = static_cast<double>(last.when - first.when);
  const double part = between > 0 ? static_cast<double>(moment - first.when) / between : 0;
  return static_cast<double>(moment) - first.ahead - std::clamp(part, 0.0, 1.0) * (last.ahead - first.ahead);
}

}  // namespace lockstep::train
