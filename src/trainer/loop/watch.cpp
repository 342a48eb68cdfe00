#include "trainer/loop/watch.h"

#include <unistd.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/launch/process/stop_signal.h"

namespace lockstep::train {
namespace {

// One small all-reduce a quarter of a second is under 0.5 % of the time even over TCP. The limit in steps is
// for steps that suddenly become slow: 100 at 50 ms are still the 5 s in which a signal must end the run.
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

StepDecision Agreement::ask(int64_t step, const RankReport& report) {
  const auto now = Clock::now();
  const auto steps = static_cast<double>(std::max<int64_t>(1, step - last_step_));
  std::vector<double> sums(kSignals + launch::StopSignals::kAll.size());
  for (size_t i = 0; i < launch::StopSignals::kAll.size(); ++i)
    sums[kSignals + i] = report.signal == launch::StopSignals::kAll[i];
  sums[kRequests] = report.stop_asked;
  sums[kSaves] = report.save_asked;
  sums[kDeadlines] = report.deadline;
  sums[kTimeUps] = report.time_up;
  sums[kNotFinite] = report.not_finite;
  sums[kLoss] = report.loss;
  sums[kStepSeconds] = std::chrono::duration<double>(now - last_time_).count() / steps;
  team_.sum(sums);

  const double step_seconds = std::max(1e-9, sums[kStepSeconds] / team_.world());
  next_ = step + std::clamp(static_cast<int64_t>(kInterval / step_seconds), int64_t{1}, kMostSteps);
  last_step_ = step;
  last_time_ = Clock::now();
  return {stop_of(sums), signal_of(sums), sums[kSaves] > 0, sums[kLoss] / team_.world(),
          step_seconds * steps};
}

namespace {

using run_folder::RunState;

bool is_last_step(const TrainSettings& train, const TrainingState& state) {
  return train.max_steps > 0 && state.step >= train.max_steps;
}

RunEnding ending_of(const StepDecision& decision) {
  switch (decision.stop) {
    case Stop::signal:
      return {RunState::stopped_early, decision.signal == launch::StopSignals::received()
                                           ? launch::StopSignals::origin()
                                           : launch::signal_name(decision.signal)};
    case Stop::request:
      return {RunState::stopped_on_request, "lockstep stop"};
    case Stop::deadline:
      return {RunState::stopped_early, "the job's time limit is near"};
    default:
      return {RunState::done, "max_seconds"};
  }
}

// Throws the Error of the earliest bad loss of all ranks; `bad` is this rank's own. Collective.
[[noreturn]] void report_bad_loss(const Team& team, const std::optional<BadLoss>& bad,
                                  const TrainingState& state) {
  nlohmann::json mine;
  if (bad)
    mine = {{"step", bad->step},
            {"loss", std::isnan(bad->loss) ? "nan" : std::to_string(bad->loss)},
            {"indices", bad->indices}};
  nlohmann::json worst;
  size_t rank = 0, number = 0;
  for (const auto& text : team.all_gather(mine.is_null() ? "" : mine.dump())) {
    const size_t of = number++;
    if (text.empty()) continue;
    const auto json = nlohmann::json::parse(text);
    if (!worst.is_null() && worst["step"] <= json["step"]) continue;
    worst = json;
    rank = of;
  }
  constexpr size_t kMost = 5;
  const auto& indices = worst["indices"];
  std::vector<std::string> samples;
  for (size_t i = 0; i < std::min(indices.size(), kMost); ++i) samples.push_back(indices[i].dump());
  if (indices.size() > kMost) samples.push_back(format("... ({} in the batch)", indices.size()));
  throw Error(
      format("the loss is {} at step {}", worst["loss"].get<std::string>(), worst["step"].get<int64_t>()),
      format("epoch {}, rank {}, samples {}", state.epoch, rank, base::join(samples, ", ")),
      "check these samples (indices), lower optim.lr or set train.clip_norm; earlier checkpoints are kept");
}

}  // namespace

RunWatch::RunWatch(const Settings& settings, const Team& team, Deadline deadline,
                   run_folder::Requests* requests, RunLog& log)
    : settings_(settings),
      team_(team),
      deadline_(std::move(deadline)),
      requests_(requests),
      log_(log),
      agreement_(team) {}

// If an attempt before this one was stopped at its limit, inside an epoch, the evaluation is to come.
void RunWatch::begin(const TrainingState& state) {
  Agreement once(team_);
  exchange_between_rounds(once, state.step, false);
  if (team_.world() > 1 && !ending_) limit_wait_after_sigterm();
  agreement_.begin(state.step);
  if (ending_) return;
  const auto& train = settings_.train;
  if (is_last_step(train, state)) {
    ending_ = RunEnding{RunState::done, "max_steps"};
  } else if (train.max_seconds > 0 && state.seconds >= train.max_seconds) {
    ending_ = RunEnding{RunState::done, "max_seconds"};
  }
}

void RunWatch::limit_wait_after_sigterm() {
  const double seconds = launch::grace_seconds(team_.job(), launch::current_environment());
  grace_ = std::make_unique<launch::Grace>(seconds, [this] {
    const std::string reason =
        "received SIGTERM, but the ranks did not agree on a stop in time: a step takes too long, or a rank "
        "has died";
    log::error(reason);
    log_.report_failure(reason);
    ::_exit(kFailed);
  });
}

bool RunWatch::is_due(const TrainingState& state) const {
  return is_last_step(settings_.train, state) || state.epoch_trained || agreement_.due(state.step);
}

// What may come from outside, at a step's end or inside an evaluation.
RankReport RunWatch::own_report(bool save) {
  RankReport report;
  report.signal = launch::StopSignals::received();
  const auto end = deadline_ ? deadline_() : std::nullopt;
  report.deadline = end && std::chrono::system_clock::now() >= *end - settings_.checkpoint.before_deadline;
  report.stop_asked = requests_ && requests_->asked(run_folder::RunRequest::stop);
  report.save_asked = save;
  return report;
}

StepDecision RunWatch::ask(const TrainingState& state, LossTrace& losses, bool save) {
  losses.read_pending();
  auto mine = own_report(save);
  const double most = settings_.train.max_seconds;
  mine.time_up = team_.first() && most > 0 && log_.seconds() >= most;
  mine.not_finite = losses.bad().has_value();
  mine.loss = losses.last();
  return agreement_.ask(state.step, mine);
}

void RunWatch::apply(const StepDecision& decision, const TrainingState& state, const LossTrace& losses) {
  stop_for(decision);
  if (decision.stop == Stop::not_finite) report_bad_loss(team_, losses.bad(), state);
  if (!ending_ && is_last_step(settings_.train, state)) ending_ = RunEnding{RunState::done, "max_steps"};
}

void RunWatch::stop_for(const StepDecision& decision) {
  if (decision.stop == Stop::no) return;
  if (grace_) grace_->agreed();
  if (decision.stop == Stop::not_finite) return;
  const auto ending = ending_of(decision);
  // at once: a launcher that is interrupted may end the ranks while they write
  if (!ending_ && ending.stopped())
    log::info(format("{}: stopping with a checkpoint; --resume auto resumes from it", ending.reason));
  ending_ = ending;
}

Agreement RunWatch::count_rounds() const {
  Agreement agreement(team_);
  agreement.begin(0);
  return agreement;
}

StepDecision RunWatch::exchange_between_rounds(Agreement& agreement, int64_t round, bool save) {
  const auto decision = agreement.ask(round, own_report(save));
  stop_for(decision);
  return decision;
}

bool RunWatch::is_best(const std::optional<double>& eval_loss, TrainingState& state) {
  if (!eval_loss) return false;
  const auto& train = settings_.train;
  const bool better = *eval_loss < state.best_loss;
  state.epochs_without_better = better ? 0 : state.epochs_without_better + train.eval_every;
  state.best_loss = std::min(state.best_loss, *eval_loss);
  if (train.early_stop > 0 && state.epochs_without_better >= train.early_stop && !ending_)
    ending_ = RunEnding{RunState::done, "early stop"};
  return better;
}

void RunWatch::reach_goal() {
  if (!ending_) ending_ = RunEnding{RunState::done, "solved"};
}

const RunEnding& RunWatch::finish() {
  if (!ending_) ending_ = RunEnding{RunState::done, "epochs"};
  if (grace_) grace_->agreed();
  return *ending_;
}

}  // namespace lockstep::train
