// What a trainer says: log lines, progress, the records in the run's folder, the summary.
#include <algorithm>

#include "lockstep/base/format.h"
#include "lockstep/train/evaluate.h"
#include "lockstep/train/trainer.h"

namespace lockstep::train {
namespace {

using Seconds = std::chrono::duration<double>;

double rate(int64_t samples, double seconds) {
  return seconds > 0 ? static_cast<double>(samples) / seconds : 0;
}

}  // namespace

double Trainer::seconds_trained() const {
  return seconds_before_ + (begin_ == Clock::time_point{} ? 0 : Seconds(Clock::now() - begin_).count());
}

// For the heartbeat and whoever speaks for the trainer: they do not look into it.
void Trainer::note_place() {
  if (!recorder_) return;
  recorder_->note([this](run_folder::RunStatus& status) {
    status.step = state_.step;
    status.epoch = state_.epoch;
    status.seconds = seconds_trained();
  });
}

void Trainer::log_step(double loss) {
  console_.line(format("Epoch [{}/{}], Step [{}/{}], Loss: {:.4f}", state_.epoch + 1, settings_.train.epochs,
                       state_.step_in_epoch, steps_this_epoch_, loss));
  const double seconds = Seconds(Clock::now() - log_begin_).count();
  const double speed = rate((samples_ - log_samples_) * team_.world(), seconds);
  log_begin_ = Clock::now();
  log_samples_ = samples_;
  if (!recorder_) return;
  recorder_->add(run_folder::StepRecord{state_.step, state_.epoch, loss, lr_, speed});
  recorder_->note([&](run_folder::RunStatus& status) { status.loss = loss; });
}

void Trainer::show_progress() {
  if (!console_.wants_progress()) return;
  const double seconds = Seconds(Clock::now() - begin_).count();
  const auto steps = static_cast<double>(std::max<int64_t>(1, state_.step - first_step_));
  const auto left = static_cast<double>(std::max<int64_t>(0, rounds_.total_steps - state_.step));
  console_.progress({.epoch = state_.epoch,
                     .epochs = settings_.train.epochs,
                     .step = state_.step_in_epoch,
                     .steps = steps_this_epoch_,
                     .loss = losses_.last(),
                     .samples_per_second = rate(samples_ * team_.world(), seconds),
                     .seconds_left = left * seconds / steps});
}

void Trainer::record_epoch(double train_loss, const Metrics* metrics) {
  console_.line(format("Epoch {} | Average Loss: {:.4f}", state_.epoch, train_loss));
  run_folder::EpochRecord record{
      state_.step, state_.epoch, train_loss, Seconds(Clock::now() - epoch_begin_).count(), 0, {}};
  record.samples_per_second = rate((samples_ - epoch_samples_) * team_.world(), record.seconds);
  if (metrics) record.metrics = metrics->values();
  std::string line;
  for (const auto& [name, value] : record.metrics) {
    line += format("{}{} {:.4f}", line.empty() ? format("Epoch {} | Evaluation: ", state_.epoch) : ", ", name,
                   value);
  }
  if (!line.empty()) console_.line(line);
  if (!recorder_) return;
  recorder_->add(record);
  recorder_->update([&](run_folder::RunStatus& status) {
    status.step = state_.step;
    status.epoch = state_.epoch + (state_.epoch_trained ? 1 : 0);
    status.loss = train_loss;
    if (metrics) status.accuracy = value_of(*metrics, "accuracy");
    status.seconds = seconds_trained();
  });
}

// Each rank's own work tells who is slow: waiting for the others does not count.
void Trainer::summarize() {
  const double seconds = Seconds(Clock::now() - begin_).count();
  const auto& phases = clock_.seconds();
  std::vector<double> sums(phases.begin(), phases.end());
  double own = 0;
  for (const auto phase : {Phase::data, Phase::forward, Phase::backward, Phase::optimiser}) {
    own += phases[static_cast<size_t>(phase)];
  }
  const auto owns = team_.all_gather(format("{:.6f} {}", own, team_.job().host));
  team_.sum(sums);
  PhaseSeconds mean;
  for (size_t i = 0; i < kPhases; ++i) mean[i] = sums[i] / team_.world();

  console_.line(
      format("Total {}Training Time: {:.2f}s", settings_.train.mode == "ddp" ? "DDP " : "", seconds));
  console_.line(format("{} steps, {:.0f} samples/s", state_.step - first_step_,
                       rate(samples_ * team_.world(), seconds)));
  console_.line("Time a rank: " + phase_table(mean));
  if (team_.world() == 1 || !team_.first()) return;  // the others need not read all ranks' words
  const auto slowest = std::max_element(
      owns.begin(), owns.end(), [](const auto& a, const auto& b) { return std::stod(a) < std::stod(b); });
  const double total = mean[0] + mean[1] + mean[2] + mean[static_cast<size_t>(Phase::optimiser)];
  console_.line(format("Slowest rank: {} on {}, {:.2f} s of own work (mean {:.2f} s)", slowest - owns.begin(),
                       slowest->substr(slowest->find(' ') + 1), std::stod(*slowest), total));
}

void Trainer::tell(run_folder::RunState state, const std::string& reason) {
  if (!recorder_) return;
  recorder_->update([&](run_folder::RunStatus& status) {
    status.state = state;
    status.reason = reason;
    status.step = state_.step;
    status.epoch = state_.epoch;
    status.seconds = seconds_trained();
  });
  if (state == run_folder::RunState::running || !requests_) return;
  for (const auto request : run_folder::kRequests) requests_->answer(request);
}

}  // namespace lockstep::train
