// The check of the hosts' clocks: read around rounds that no rank leaves before all have come.
#include <chrono>

#include "tools/doctor/job/active.h"
#include "tools/doctor/job/clocks.h"

namespace lockstep::doctor {
namespace {

using namespace std::chrono_literals;

constexpr int kClockRounds = 8;
constexpr auto kRoundPatience = 8s;

int64_t nanoseconds_now() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(system_clock::now().time_since_epoch()).count();
}

std::vector<Skew> skews_in(const Heard& heard, const Picture& picture) {
  std::vector<Skew> skews;
  const auto first = unpack_rounds(heard.texts.at(0).value_or(""));
  for (size_t rank = 1; rank < heard.texts.size(); ++rank) {
    const auto rounds = unpack_rounds(heard.texts[rank].value_or(""));
    if (first.empty() || rounds.empty()) continue;
    const auto reading = base::compare_rounds(first, rounds);
    const auto host = rank < picture.ranks.size() ? picture.ranks[rank].job.host : "";
    skews.push_back({static_cast<int>(rank), host, reading.ahead * 1e-9, reading.error * 1e-9});
  }
  return skews;
}

}  // namespace

Findings run_clocks(const Bench& bench) {
  if (bench.talk.world() == 1) return {};
  std::vector<base::ClockRound> rounds;
  for (int i = 0; i < kClockRounds && !bench.talk.is_broken(); ++i) {
    const auto before = nanoseconds_now();
    bench.talk.round("", kRoundPatience);
    rounds.push_back({before, nanoseconds_now()});
  }
  const auto heard = bench.talk.round(pack(rounds), kRoundPatience);
  if (!bench.speaks()) return {};
  if (!heard.why.empty()) return {silence(bench, heard)};
  return judge_clocks(skews_in(heard, bench.picture));
}

}  // namespace lockstep::doctor
