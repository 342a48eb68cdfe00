#include "lockstep/train/trainer.h"

#include <torch/types.h>
#include <torch/utils.h>
#include <unistd.h>

#include <algorithm>

#include "lockstep/base/log.h"
#include "lockstep/checkpoint/rng.h"
#include "lockstep/launch/stop_signal.h"
#include "lockstep/train/evaluate.h"
#include "lockstep/train/task_memory.h"

namespace lockstep::train {
namespace {

// From so many seconds on an evaluation is begun from a checkpoint: whatever ends it then costs no training.
constexpr double kLongEvaluation = 5;

LossOptions loss_options(const Setup& setup) {
  LossOptions options;
  options.label_smoothing = setup.settings.train.label_smoothing;
  if (setup.data.class_weights.defined())
    options.class_weights = setup.data.class_weights.to(setup.team->device());
  return options;
}

SamplerOptions sampler_options(const Setup& setup) {
  return {.rank = setup.team->rank(),
          .world = setup.team->world(),
          .shuffle = setup.settings.data.shuffle,
          .seed = setup.settings.run.seed,
          .drop_last = setup.settings.data.drop_last};
}

}  // namespace

Trainer::Trainer(Setup& setup)
    : setup_(setup),
      settings_(setup.settings),
      team_(*setup.team),
      rounds_(plan_rounds(settings_, setup.data.train->size(), team_.world())),
      model_(make_trained_model(seeded_model(setup), team_, settings_)),
      optimizer_(make_optimizer(settings_.optim, model_->parameters())),
      schedule_(make_schedule(settings_.schedule, *optimizer_, rounds_.total_steps, settings_.train.epochs)),
      scaler_(settings_.train.precision == "fp16" ? std::make_unique<GradScaler>(team_.device()) : nullptr),
      sampler_(setup.data.train->size(), sampler_options(setup)),
      agreement_(team_),
      console_(team_.first()) {
  step_.emplace(*model_, *optimizer_, scaler_.get(), *setup.task, loss_options(setup), settings_,
                team_.device());
  memory_ = remembered(setup);
}

Ending Trainer::run() {
  begin_ = log_begin_ = save_begin_ = Clock::now();
  first_step_ = state_.step;
  hear_what_came_before();
  if (team_.world() > 1 && !ending_) {
    grace_ = std::make_unique<
        launch::Grace>(launch::grace_seconds(team_.job(), launch::current_environment()), [this] {
      const std::string reason =
          "SIGTERM came, and the ranks came to no agreement in time: a step takes longer, or a rank is gone";
      log::error(reason);
      if (recorder_) recorder_->last_word(reason);
      ::_exit(kFailed);
    });
  }
  agreement_.begin(state_.step);
  if (!ending_) ending_ = limit_reached();
  if (ending_ && !is_stopping() && state_.step_in_epoch > 0) train_epoch();
  while (!ending_ && state_.epoch < settings_.train.epochs) train_epoch();
  if (!ending_) ending_ = Ending{run_folder::RunState::done, "epochs"};
  if (grace_) grace_->agreed();  // nothing is left to agree on: a write may take its time
  checkpoint();
  finish_checkpoints();
  summarize();
  grace_.reset();
  return *ending_;
}

void Trainer::train_epoch() {
  epoch_begin_ = Clock::now();
  epoch_samples_ = samples_;
  if (!state_.epoch_trained && !ending_) take_steps();
  if (is_stopping()) return;
  if (state_.epoch_trained) {
    end_epoch();
  } else {
    end_inside_epoch();
  }
}

void Trainer::take_steps() {
  if (state_.consumed == 0) {
    losses_.restart();
    draw_base_seed();
  }
  sampler_.resume({state_.epoch, state_.consumed});
  auto options = loader_options(settings_, team_.device());
  options.drop_last = settings_.data.drop_last_batch;
  Loader loader(setup_.data.train, sampler_, options);
  clock_.enter(Phase::data);
  auto batch = loader.begin();
  int64_t left = loader.batches(), taken = 0;
  bool fresh = true;
  const std::function<Batch&()> next = [&]() -> Batch& {
    if (!fresh) ++batch;
    fresh = false;
    taken += batch->input.size(0);
    return *batch;
  };
  const int64_t together = settings_.train.accumulate;
  steps_this_epoch_ = state_.step_in_epoch + (left + together - 1) / together;
  state_.epoch_trained = left == 0;
  while (left > 0 && !ending_) {
    const int64_t batches = std::min(together, left);
    const int64_t before = taken;
    step_->run(state_.step + 1, batches, next, losses_, clock_);
    ++state_.step;
    ++state_.step_in_epoch;
    left -= batches;
    samples_ += taken - before;
    state_.consumed = sampler_.position_after(taken).consumed;
    state_.epoch_trained = left == 0;
    after_step();
  }
}

double Trainer::try_step() {
  sampler_.set_epoch(0);
  Loader loader(setup_.data.train, sampler_, loader_options(settings_, team_.device()));
  auto batch = loader.begin();
  const auto begin = Clock::now();
  step_->run(
      1, 1, [&]() -> Batch& { return *batch; }, losses_, clock_);
  losses_.settle();
  return std::chrono::duration<double>(Clock::now() - begin).count() *
         static_cast<double>(settings_.train.accumulate);
}

void Trainer::after_step() {
  const auto& train = settings_.train;
  const int64_t every = settings_.checkpoint.every_steps;
  const bool log_now = train.log_every > 0 && state_.step_in_epoch % train.log_every == 0;
  const bool save_now = every > 0 && state_.step % every == 0 && !state_.epoch_trained;
  const bool last = train.max_steps > 0 && state_.step >= train.max_steps;
  lr_ = optimizer_->lr();
  note_place();
  if (schedule_->per_step()) schedule_->step();
  bool save = save_now;
  if (log_now || save_now || last || state_.epoch_trained || agreement_.due(state_.step)) {
    const auto verdicts = ask();
    if (log_now) log_step(verdicts.loss);
    obey(verdicts);
    save = save || verdicts.save;
  }
  show_progress();
  if (ending_) return;
  if (last) ending_ = Ending{run_folder::RunState::done, "max_steps"};
  if (save && !ending_) checkpoint();
}

// What one rank knows, at a step's end or inside an evaluation.
Word Trainer::word_between_steps() {
  Word word;
  word.signal = launch::StopSignals::received();
  word.deadline =
      deadline_ && std::chrono::system_clock::now() >= *deadline_ - settings_.checkpoint.before_deadline;
  if (!requests_) return word;
  answer_when_saved();
  word.stop_asked = requests_->asked(run_folder::Request::stop);
  const double minutes = std::chrono::duration<double, std::ratio<60>>(Clock::now() - save_begin_).count();
  const double every = settings_.checkpoint.every_minutes;
  word.save_asked = (every > 0 && minutes >= every) ||
                    (requests_->asked(run_folder::Request::checkpoint) && !answer_is_near_);
  return word;
}

Verdicts Trainer::ask() {
  losses_.settle();
  auto word = word_between_steps();
  word.time_up =
      team_.first() && settings_.train.max_seconds > 0 && seconds_trained() >= settings_.train.max_seconds;
  word.not_finite = losses_.bad().has_value();
  word.loss = losses_.last();
  return agreement_.ask(state_.step, word);
}

void Trainer::obey(const Verdicts& verdicts) {
  if (verdicts.stop == Stop::no) return;
  if (grace_) grace_->agreed();
  switch (verdicts.stop) {
    case Stop::not_finite:
      report_bad_loss();  // does not return
    case Stop::signal:
      ending_ = Ending{run_folder::RunState::stopped_early, launch::signal_name(verdicts.signal)};
      break;
    case Stop::request:
      ending_ = Ending{run_folder::RunState::stopped_on_request, "lockstep stop"};
      break;
    case Stop::deadline:
      ending_ = Ending{run_folder::RunState::stopped_early, "the job's end is near"};
      break;
    default:
      ending_ = Ending{run_folder::RunState::done, "max_seconds"};
  }
}

// A signal, a deadline or a request that came while the run was set up.
void Trainer::hear_what_came_before() {
  Agreement once(team_);
  obey(once.ask(state_.step, word_between_steps()));
}

// An attempt before this one came to the limit. If it was stopped inside an epoch, the evaluation is to come.
std::optional<Ending> Trainer::limit_reached() const {
  const auto& train = settings_.train;
  if (train.max_steps > 0 && state_.step >= train.max_steps)
    return Ending{run_folder::RunState::done, "max_steps"};
  if (train.max_seconds > 0 && seconds_before_ >= train.max_seconds)
    return Ending{run_folder::RunState::done, "max_seconds"};
  return std::nullopt;
}

void Trainer::end_epoch() {
  const double train_loss = mean_train_loss();
  std::unique_ptr<Metrics> metrics;
  if (settings_.train.eval_every > 0 && (is_scheduled_evaluation() || is_last_epoch())) {
    if (evaluation_is_long_ && is_checkpoint_due()) checkpoint();
    metrics = evaluate_now();
    if (is_stopping()) return;
  }
  const auto eval_loss = metrics ? value_of(*metrics, "loss") : std::nullopt;
  if (!schedule_->per_step()) schedule_->step(eval_loss.value_or(train_loss));
  record_epoch(train_loss, metrics.get());
  const bool better = count_epochs_without_better(metrics.get());
  best_is_new_ = better && settings_.checkpoint.best;
  const bool last = is_last_epoch(), due = is_checkpoint_due();
  ++state_.epoch;
  state_.consumed = state_.step_in_epoch = 0;
  state_.epoch_trained = false;
  if (!last && (due || best_is_new_)) checkpoint(due ? Save::newest : Save::best);
}

bool Trainer::is_checkpoint_due() const {
  const int64_t every = settings_.checkpoint.every_epochs;
  return is_last_epoch() || (every > 0 && (state_.epoch + 1) % every == 0);
}

// The run ends by max_steps or max_seconds: the checkpoint is that of a run which goes on.
void Trainer::end_inside_epoch() {
  checkpoint();
  const double train_loss = mean_train_loss();
  const auto metrics = settings_.train.eval_every > 0 ? evaluate_now() : nullptr;
  if (is_stopping()) return;
  record_epoch(train_loss, metrics.get());
}

bool Trainer::is_scheduled_evaluation() const {
  const int64_t every = settings_.train.eval_every;
  return every > 0 && (state_.epoch + 1) % every == 0;
}

// One that is cut short is made again by the next attempt, and one that a longer run would not have leaves no
// trace in the random numbers.
std::unique_ptr<Metrics> Trainer::evaluate_now() {
  clock_.enter(Phase::other);
  console_.clear();
  const auto begin = Clock::now();
  const auto generator = rng_state().clone();
  Agreement agreement(team_);
  agreement.begin(0);
  const auto is_cut_short = [&](int64_t batch) {
    if (!agreement.due(batch)) return false;
    const auto verdicts = agreement.ask(batch, word_between_steps());
    obey(verdicts);
    if (verdicts.save && !is_stopping()) checkpoint_from_before(generator);
    return is_stopping();
  };
  auto metrics = evaluate(team_, model_->net(), *setup_.task, setup_.data, settings_, is_cut_short);
  if (!metrics || !is_scheduled_evaluation()) set_rng_state(generator);
  std::vector<double> seconds{std::chrono::duration<double>(Clock::now() - begin).count()};
  team_.max(seconds);
  evaluation_is_long_ = seconds[0] >= kLongEvaluation;
  return metrics;
}

void Trainer::checkpoint_from_before(const at::Tensor& generator) {
  const auto now = rng_state().clone();
  set_rng_state(generator);
  checkpoint();
  set_rng_state(now);
}

double Trainer::mean_train_loss() {
  losses_.settle();
  std::vector<double> sums{losses_.sum(), static_cast<double>(losses_.count())};
  team_.sum(sums);
  return sums[1] > 0 ? sums[0] / sums[1] : 0;
}

// Whether this evaluation is the best so far.
bool Trainer::count_epochs_without_better(const Metrics* metrics) {
  const auto loss = metrics ? value_of(*metrics, "loss") : std::nullopt;
  if (!loss || !is_scheduled_evaluation()) return false;
  const bool better = *loss < state_.best_loss;
  state_.epochs_without_better = better ? 0 : state_.epochs_without_better + settings_.train.eval_every;
  state_.best_loss = std::min(state_.best_loss, *loss);
  const int64_t most = settings_.train.early_stop;
  if (most > 0 && state_.epochs_without_better >= most && !ending_)
    ending_ = Ending{run_folder::RunState::done, "early stop"};
  return better;
}

}  // namespace lockstep::train
