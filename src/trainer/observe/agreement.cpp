#include "trainer/observe/agreement.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstddef>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/connect.h"
#include "lockstep/launch/process/stop_signal.h"

namespace lockstep::train {
namespace {

struct Statistics {
  std::vector<std::string> names;  // an entry for each number
  std::vector<at::Tensor> values;
};

Statistics statistics_of(const torch::nn::Module& module) {
  Statistics found;
  for (const auto& item : module.named_buffers()) {
    const auto& name = item.key();
    const bool running = name.ends_with("running_mean") || name.ends_with("running_var");
    if (!running || !item.value().defined()) continue;
    found.values.push_back(item.value().detach().to(torch::kCPU, torch::kFloat64).flatten());
    for (int64_t i = 0; i < item.value().numel(); ++i) found.names.push_back(format("{}[{}]", name, i));
  }
  return found;
}

}  // namespace

std::string norm_drift(const Team& team, const torch::nn::Module& module) {
  const torch::NoGradGuard no_grad;
  const auto own = statistics_of(module);
  if (own.values.empty() || team.world() == 1) return "";
  const auto all = torch::stack(team.all_gather(torch::cat(own.values)));
  const auto spread = all.amax(0) - all.amin(0);
  const auto worst = spread.argmax().item<int64_t>();
  if (!(spread[worst].item<double>() > 0)) return "";
  const auto low = all.select(1, worst).argmin().item<int64_t>();
  const auto high = all.select(1, worst).argmax().item<int64_t>();
  const auto in_job = [&](int64_t rank) { return comm::rank_in_job(team.group(), static_cast<int>(rank)); };
  return format(
      "batch normalisation is not synchronised: {} is {:.4f} on rank {}, {:.4f} on rank {}; rank 0's are "
      "saved\n"
      "  to do: set ddp.sync_batchnorm: true where a rank's batch is small",
      own.names[static_cast<size_t>(worst)], all[low][worst].item<double>(), in_job(low),
      all[high][worst].item<double>(), in_job(high));
}

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
