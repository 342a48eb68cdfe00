#include "trainer/loop/trainer.h"

#include <torch/types.h>
#include <torch/utils.h>

#include <utility>

#include "lockstep/base/format.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/rng.h"
#include "lockstep/comm/connect.h"
#include "trainer/step/evaluate.h"

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

// Batch normalization that each rank computes over its own samples: where the ranks' running statistics
// differ most, in words with what to do. Empty where they are the same, or there are none. Collective.
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
      "batch normalization is not synchronized: {} is {:.4f} on rank {}, {:.4f} on rank {}; rank 0's are "
      "saved\n  hint: set ddp.sync_batchnorm: true if the batch of a rank is small",
      own.names[static_cast<size_t>(worst)], all[low][worst].item<double>(), in_job(low),
      all[high][worst].item<double>(), in_job(high));
}

}  // namespace

Trainer::Trainer(const Setup& setup, Learner learner, const Start& start)
    : setup_(setup),
      learner_(std::move(learner)),
      state_(start.state),
      feed_(learner_.source->feed(setup.settings)),
      step_(setup, learner_),
      requests_(start.attempt.folder ? std::make_unique<run_folder::Requests>(start.attempt.folder->path())
                                     : nullptr),
      log_(setup.settings, *setup.mesh, state_, learner_.rounds.total_steps, start.attempt),
      trace_(*setup.team, learner_.tracer, start.attempt.folder),
      facts_(setup, start.attempt),
      checkpoints_({setup.settings, *setup.mesh, learner_, setup.config}, state_, start.attempt,
                   requests_.get(), log_),
      watch_(setup.settings, *setup.team, start.deadline, requests_.get(), log_),
      fault_(injected_fault(setup.settings)) {
  losses_.restart(state_.loss_sum, state_.loss_count);
  if (learner_.graph && setup.team->world() > 1) watch_captured_steps();
}

// Nobody times a captured step. A dead peer ends the collective that is timed before each wait for losses,
// but this rank may stand in the launch of a step and never come to that.
void Trainer::watch_captured_steps() {
  losses_.before_waiting([&team = *setup_.team] { team.time_queued_work(); });
  stall_ = comm::watch_stalls(setup_.team->group(), "a captured step", setup_.settings.launch.timeout);
}

RunEnding Trainer::run() {
  watch_.begin(state_);
  facts_.begin(state_.step);
  check_goal();
  log_.clock().trace(trace_.tracer());
  log_.clock().time_on(setup_.team->device());
  if (setup_.settings.train.nvtx) log_.clock().show_ranges();
  if (watch_.ending() && !watch_.is_stopping() && state_.step_in_epoch > 0) train_epoch();
  while (!watch_.ending() && state_.epoch < setup_.settings.train.epochs) train_epoch();
  const auto ending = watch_.finish();
  checkpoints_.save(state_, losses_);
  checkpoints_.finish();
  log_.clock().read_pending(/*all=*/true);
  log_.exchange_usage();
  const auto phases = log_.summarize(state_);
  log_.line(learner_.model->summary());
  log_.line(learner_.source->summary());
  facts_.finish(phases);
  trace_.finish();
  watch_.leave();
  return ending;
}

void Trainer::train_epoch() {
  log_.begin_epoch();
  if (!state_.epoch_trained && !watch_.ending()) take_steps();
  if (watch_.is_stopping()) return;
  if (state_.epoch_trained) {
    end_epoch();
  } else {
    end_inside_epoch();
  }
}

void Trainer::take_steps() {
  if (state_.consumed == 0) losses_.restart();
  log_.clock().enter(Phase::data);
  learner_.source->prepare(learner_.model->net(), state_);
  auto epoch = feed_.epoch(state_);
  step_.begin_epoch(epoch.order());
  log_.begin_steps(epoch.steps());
  while (epoch.next_step()) {
    if (stall_) stall_->sign();
    step_.run(state_.step + 1, epoch, losses_, log_.clock());
    epoch.advance(state_);
    if (fault_ && fault_->after_step && state_.step == InjectedFault::kStep)
      fault_->after_step(setup_.mesh->data(), setup_.settings);
    log_.took_step(state_, epoch.samples());
    const double lr = learner_.optimizer->lr();
    if (learner_.schedule->per_step()) learner_.schedule->step();
    const bool show = log_.is_due(state_);
    bool save = checkpoints_.is_due(state_);
    if (show || save || watch_.is_due(state_)) {
      const auto decision = watch_.ask(state_, losses_, checkpoints_.is_wanted(state_));
      log_.clock().read_pending();
      if (show) log_.step(state_, decision.loss, lr);
      watch_.apply(decision, state_, losses_);
      constexpr double kSeldom = 16;  // seconds
      seconds_unreported_ += decision.seconds;
      if (seconds_unreported_ > kSeldom) {
        log_.exchange_usage();
        seconds_unreported_ = 0;
      }
      save = save || decision.save;
    }
    log_.progress(state_, losses_.last());
    if (watch_.ending()) break;
    if (save) checkpoints_.save(state_, losses_);
    if (stall_ && save) stall_->sign();
  }
  if (state_.epoch_trained || watch_.ending()) warn_of_untrained();
  if (!stall_) return;
  losses_.read_pending();
  stall_->rest();
}

// As an exported model whose backward torch.export dropped, or a layer that forward() forgets.
void Trainer::warn_of_untrained() {
  constexpr size_t kNamed = 5;
  auto names = step_.take_untrained();
  const auto count = names.size();
  if (count == 0) return;
  if (count > kNamed) names.resize(kNamed), names.emplace_back("...");
  log::warning(format("{} had only zero gradients so far: {}",
                      base::counted(static_cast<int64_t>(count), "parameter"), base::join(names, ", ")));
}

void Trainer::end_epoch() {
  const bool scheduled = is_evaluation_scheduled(setup_.settings.train, state_.epoch);
  const double train_loss = mean_train_loss();
  compare_norms();
  const auto measured = measure();
  if (watch_.is_stopping()) return;
  const auto eval_loss = value_of(measured.values, "loss");
  if (!learner_.schedule->per_step()) learner_.schedule->step(eval_loss.value_or(train_loss));
  log_.epoch(state_, shown(train_loss), measured);
  const bool better = scheduled && watch_.is_best(learner_.source->cost(eval_loss), state_);
  check_goal();
  const bool last = is_last_epoch();
  ++state_.epoch;
  state_.consumed = state_.step_in_epoch = 0;
  state_.epoch_trained = false;
  checkpoints_.save_after_epoch(state_, losses_, better, last);
}

// What is due after this epoch.
EpochMetrics Trainer::measure() {
  if (auto measured = learner_.source->measured()) return *measured;
  const auto& train = setup_.settings.train;
  if (setup_.data.eval->size() == 0) return {};
  const bool last = is_last_epoch();
  if (train.eval_every == 0 || !(last || is_evaluation_scheduled(train, state_.epoch))) return {};
  return evaluate_now();
}

// Between two epochs: what is acted is learned from first.
void Trainer::check_goal() {
  if ((state_.consumed == 0 || state_.epoch_trained) && learner_.source->has_reached_goal())
    watch_.reach_goal();
}

// Once a run: what they say after an epoch they say after each. Before an evaluation, which shares them.
void Trainer::compare_norms() {
  if (std::exchange(norms_compared_, true) || setup_.settings.ddp.sync_batchnorm) return;
  const auto drift = norm_drift(setup_.mesh->data(), learner_.model->net());
  if (!drift.empty()) log::warning(drift);
}

// The run ends by max_steps or max_seconds: the checkpoint is that of a run which goes on.
void Trainer::end_inside_epoch() {
  checkpoints_.save(state_, losses_);
  const double train_loss = mean_train_loss();
  compare_norms();
  const auto measured = measure();
  if (watch_.is_stopping()) return;
  log_.epoch(state_, shown(train_loss), measured);
}

bool Trainer::is_last_epoch() const {
  return watch_.ending() || state_.epoch + 1 == setup_.settings.train.epochs;
}

// One that is cut short is made again by the next attempt, and one that a longer run would not have leaves no
// trace in the random numbers.
EpochMetrics Trainer::evaluate_now() {
  log_.begin_evaluation();
  const ScopedSpan span(trace_.tracer(), SpanKind::evaluation);
  const auto generator = rng_state().clone();
  auto agreement = watch_.count_rounds();
  const auto is_cut_short = [&](int64_t batch) {
    if (!agreement.due(batch)) return false;
    const auto decision = watch_.exchange_between_rounds(agreement, batch, checkpoints_.is_wanted(state_));
    if (decision.save && !watch_.is_stopping()) checkpoint_from_before(generator);
    return watch_.is_stopping();
  };
  WorstSamples worst;
  auto metrics = evaluate(setup_.mesh->data(), learner_.model->net(), *setup_.task, setup_.data,
                          setup_.settings, is_cut_short, &worst);
  if (metrics) facts_.evaluated(*metrics, std::move(worst), state_.step, state_.epoch);
  if (!metrics || !is_evaluation_scheduled(setup_.settings.train, state_.epoch)) set_rng_state(generator);
  return metrics ? EpochMetrics{.values = metrics->values()} : EpochMetrics{};
}

void Trainer::checkpoint_from_before(const at::Tensor& generator) {
  const auto now = rng_state().clone();
  set_rng_state(generator);
  checkpoints_.save(state_, losses_);
  set_rng_state(now);
}

double Trainer::shown(double train_loss) const {
  const bool changes = fault_ && fault_->shown_loss;
  return changes ? fault_->shown_loss(setup_.mesh->data(), train_loss, losses_) : train_loss;
}

double Trainer::mean_train_loss() {
  losses_.read_pending();
  std::vector<double> sums{losses_.sum(), static_cast<double>(losses_.count())};
  setup_.mesh->data().sum(sums);
  return sums[1] > 0 ? sums[0] / sums[1] : 0;
}

void Trainer::tell(run_folder::RunState now, const std::string& reason) {
  // Whoever waits for a run's end may end its processes then; of one that fails, others may have ended.
  const bool last = now != run_folder::RunState::failed;
  if (!last) log_.tell(state_, now, reason);
  facts_.tell(now, reason, state_.step, log_.clock().seconds());
  if (last) log_.tell(state_, now, reason);
  if (now == run_folder::RunState::failed) trace_.save_own(reason);
  if (now == run_folder::RunState::running || !requests_) return;
  for (const auto request : run_folder::kRequests) requests_->answer(request);
}

}  // namespace lockstep::train
