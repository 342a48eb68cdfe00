#include "tools/doctor/job/clocks.h"

#include <algorithm>
#include <cmath>
#include <sstream>

#include "lockstep/base/format.h"
#include "tools/doctor/job/pairs.h"

namespace lockstep::doctor {
namespace {

constexpr double kMuch = 1;      // seconds: a clock that nobody sets
constexpr double kTooMuch = 30;  // half of what the run folder's lock takes for a sign of life

// What is certain of it.
double at_least(const Skew& skew) {
  return std::max(0.0, std::abs(skew.ahead) - skew.error);
}

}  // namespace

std::string pack(const std::vector<base::ClockRound>& rounds) {
  std::string text;
  for (const auto& round : rounds) text += format("{} {}\n", round.before, round.after);
  return text;
}

std::vector<base::ClockRound> unpack_rounds(const std::string& text) {
  std::istringstream lines(text);
  std::vector<base::ClockRound> rounds;
  for (base::ClockRound round; lines >> round.before >> round.after;) rounds.push_back(round);
  return rounds;
}

Findings judge_clocks(const std::vector<Skew>& skews) {
  if (skews.empty()) return {fine("one rank: one clock")};
  const auto worst = *std::max_element(
      skews.begin(), skews.end(), [](const Skew& a, const Skew& b) { return at_least(a) < at_least(b); });
  const auto text = format("the clock of rank {} (host {}) is {} {} rank 0's, give or take {}", worst.rank,
                           worst.host, time_text(std::abs(worst.ahead)),
                           worst.ahead < 0 ? "behind" : "ahead of", time_text(worst.error));
  const double much = at_least(worst);
  if (much <= kMuch)
    return {
        fine(format("the hosts' clocks agree within {}", time_text(std::abs(worst.ahead) + worst.error)))};
  const std::string remedy =
      "have that node's clock set: chronyc tracking, timedatectl or ntpq -p there tell why it is off";
  return {much > kTooMuch ? fail(text + ": such times decide whether a run folder is in use", remedy)
                          : warn(text, remedy)};
}

}  // namespace lockstep::doctor
