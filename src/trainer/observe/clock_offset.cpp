#include "trainer/observe/clock_offset.h"

#include <algorithm>
#include <sstream>

#include "lockstep/base/format.h"

namespace lockstep::train {
namespace {

constexpr int kRounds = 16;

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

std::vector<base::ClockRound> rounds_in(const std::string& text) {
  std::istringstream lines(text);
  std::vector<base::ClockRound> rounds(kRounds);
  for (auto& [before, after] : rounds) lines >> before >> after;
  return rounds;
}

}  // namespace

std::vector<ClockReading> compare_clocks(const Team& team, const Tracer& tracer) {
  const auto texts = team.all_gather(measured(team, tracer));
  const auto first = rounds_in(texts[0]);
  std::vector<ClockReading> readings = {{first.back().after, 0, 0}};
  for (size_t rank = 1; rank < texts.size(); ++rank)
    readings.push_back(base::compare_rounds(first, rounds_in(texts[rank])));
  return readings;
}

double aligned(int64_t moment, const ClockReading& first, const ClockReading& last) {
  const auto between = static_cast<double>(last.when - first.when);
  const double part = between > 0 ? static_cast<double>(moment - first.when) / between : 0;
  return static_cast<double>(moment) - first.ahead - std::clamp(part, 0.0, 1.0) * (last.ahead - first.ahead);
}

}  // namespace lockstep::train
