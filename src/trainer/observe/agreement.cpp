#include "trainer/observe/agreement.h"

#include <algorithm>
#include <cstddef>

#include "lockstep/launch/process/stop_signal.h"

namespace lockstep::train {
namespace {

// One small all-reduce a quarter of a second is under 0.5 % of the time even over TCP. The limit in steps is
// for steps that suddenly become slow: 100 of them at 50 ms are still the 5 s in which a signal must end the
// run.
constexpr double kInterval = 0.25;
constexpr int64_t kMostSteps = 100;

enum Slot {
  kRequests,
  kSaves,
  kDeadlines,
  kTimeUps,
  kNotFinite,
  kLoss,
  kStepSeconds,
  kSignals  // one slot for each of StopSignals::kAll
};

// Ranks may have received different signals: the first in the list that any rank received, or 0.
int signal_of(const std::vector<double>& sums) {
  for (size_t i = 0; i < launch::StopSignals::kAll.size(); ++i)
    if (sums[kSignals + i] > 0) return launch::StopSignals::kAll[i];
  return 0;
}

Stop stop_of(const std::vector<double>& sums) {
  if (sums[kNotFinite] > 0) return Stop::not_finite;
  if (sums[kRequests] > 0) return Stop::request;  // before a signal, after which a job script would go on
  if (signal_of(sums) != 0) return Stop::signal;
  if (sums[kDeadlines] > 0) return Stop::deadline;
  if (sums[kTimeUps] > 0) return Stop::max_seconds;
  return Stop::no;
}

}  // namespace

void Agreement::begin(int64_t step) {
  last_step_ = step;
  next_ = step + 1;
  last_time_ = Clock::now();
}

Agreed Agreement::ask(int64_t step, const RankReport& word) {
  const auto now = Clock::now();
  const auto steps = static_cast<double>(std::max<int64_t>(1, step - last_step_));
  std::vector<double> sums(kSignals + launch::StopSignals::kAll.size());
  for (size_t i = 0; i < launch::StopSignals::kAll.size(); ++i)
    sums[kSignals + i] = word.signal == launch::StopSignals::kAll[i];
  sums[kRequests] = word.stop_asked;
  sums[kSaves] = word.save_asked;
  sums[kDeadlines] = word.deadline;
  sums[kTimeUps] = word.time_up;
  sums[kNotFinite] = word.not_finite;
  sums[kLoss] = word.loss;
  sums[kStepSeconds] = std::chrono::duration<double>(now - last_time_).count() / steps;
  team_.sum(sums);

  const double step_seconds = std::max(1e-9, sums[kStepSeconds] / team_.world());
  next_ = step + std::clamp(static_cast<int64_t>(kInterval / step_seconds), int64_t{1}, kMostSteps);
  last_step_ = step;
  last_time_ = Clock::now();
  return {stop_of(sums), signal_of(sums), sums[kSaves] > 0, sums[kLoss] / team_.world()};
}

}  // namespace lockstep::train
