// `lockstep bench step`: the measuring.
#include <algorithm>
#include <memory>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/log.h"
#include "tools/bench/bench.h"
#include "tools/bench/measure.h"
#include "tools/bench/step_report.h"
#include "trainer/config/keys.h"
#include "trainer/step/step.h"

namespace lockstep::bench {
namespace {

// The steps of a config's training, without logs, evaluations and checkpoints.
class TrainingSteps {
 public:
  /// The model comes from the config's seed. `setup` outlives this. Collective.
  explicit TrainingSteps(const train::Setup& setup)
      : learner_(train::make_learner(setup)),
        step_(setup, learner_),
        feed_(learner_.source->feed(setup.settings)) {
    clock_.time_on(setup.team->device());
  }
  TrainingSteps(const TrainingSteps&) = delete;
  TrainingSteps& operator=(const TrainingSteps&) = delete;

  /// Begins an epoch if the next step is its first; a task that acts does so here. Collective.
  void make_ready() {
    if (epoch_ && !epoch_->is_over()) return;
    if (epoch_) {
      read_pending();
      ++state_.epoch;
    }
    clock_.enter(train::Phase::data);
    epoch_.reset();  // its workers end before new ones start
    learner_.source->prepare(learner_.model->net(), state_);
    epoch_.reset(new train::EpochFeed(feed_.epoch(state_)));
    clock_.enter(train::Phase::other);
  }

  /// Takes the next step, of the next epoch after the last one of an epoch. Collective.
  void take() {
    make_ready();
    epoch_->next_step();
    step_.run(++state_.step, *epoch_, losses_, clock_);
    samples_ += epoch_->samples();
  }

  /// Waits for the GPU.
  void read_pending() { losses_.read_pending(); }
  /// Whether a loss that has been read was not a number.
  bool diverged() const { return losses_.bad().has_value(); }
  train::PhaseClock& clock() { return clock_; }
  /// Of this rank, in all steps taken.
  int64_t samples() const { return samples_; }

 private:
  train::Learner learner_;
  train::TrainingStep step_;
  const train::Feed feed_;
  train::TrainingState state_;
  train::PhaseClock clock_;
  train::LossTrace losses_;
  int64_t samples_ = 0;
  std::unique_ptr<train::EpochFeed> epoch_;
};

constexpr int64_t kMostSteps = 100'000;
constexpr int64_t kFewest = 3;  // however long they take: DDP arranges its buckets in the second
constexpr double kSeconds = 5;  // of timed steps, without --steps
constexpr int64_t kWarmSteps = 10;
constexpr double kWarmSeconds = 0.3, kWarmAtMost = 2;

train::Command command_of(const StepBench& asked) {
  auto command = asked.command;
  command.must_match = {{"the command", "bench step"}, {"--steps", std::to_string(asked.steps.value_or(0))}};
  return command;
}

// The slowest rank's, on every rank. Collective.
double timed_step(TrainingSteps& steps, const Team& team) {
  const auto begin = Clock::now();
  steps.take();
  steps.read_pending();
  std::vector<double> seconds{since(begin)};
  team.max(seconds);
  return seconds[0];
}

struct WarmUp {
  int64_t steps = 0;
  double a_step = 0;  // seconds that one takes in the end
};

WarmUp warm_up(TrainingSteps& steps, const Team& team) {
  std::vector<double> seconds;
  double passed = 0;
  const auto is_warm = [&] {
    const auto count = static_cast<int64_t>(seconds.size());
    return (count >= kWarmSteps && passed >= kWarmSeconds) || (count >= kFewest && passed >= kWarmAtMost);
  };
  while (!is_warm()) {
    seconds.push_back(timed_step(steps, team));
    passed += seconds.back();
  }
  const auto count = static_cast<int64_t>(seconds.size());
  return {count, spread_of({seconds.begin() + static_cast<std::ptrdiff_t>(count / 2), seconds.end()}).mean};
}

struct Counted {
  Work work;
  int64_t samples = 0;
};

Counted counted_step(TrainingSteps& steps) {
  steps.make_ready();  // acting does not count as work of a step
  const WorkCount count;
  const auto before = steps.samples();
  steps.take();
  return {count.so_far(), steps.samples() - before};
}

// libtorch does not see kernels of our own: what it would do in their place is counted.
Counted counted_with_libtorch(train::Setup& setup) {
  auto& kernels = setup.settings.train.kernels;
  const auto asked = std::exchange(kernels, KernelChoice::exact);
  Counted counted;
  {
    TrainingSteps steps(setup);
    counted = counted_step(steps);
  }
  kernels = asked;
  return counted;
}

void time_steps(TrainingSteps& steps, const Team& team, int64_t count, RankSteps& rank) {
  std::vector<double> seconds(static_cast<size_t>(count));
  steps.read_pending();
  team.barrier();
  auto& clock = steps.clock();
  const auto processors = processor_time();
  clock.enter(train::Phase::other);
  clock.read_pending(/*all=*/true);
  const auto before = clock.seconds();
  for (auto& one : seconds) {
    const auto begin = Clock::now();
    steps.take();
    one = since(begin);
  }
  steps.read_pending();
  clock.enter(train::Phase::other);
  clock.read_pending(/*all=*/true);
  rank.processors = processor_time() - processors;
  for (size_t i = 0; i < train::kPhases; ++i)
    rank.phases[i] = (clock.seconds()[i] - before[i]) / static_cast<double>(count);
  const auto spread = spread_of(std::move(seconds));
  rank.median = spread.median;
  rank.least = spread.least;
  rank.longest = spread.most;
}

// Of the peaks before the steps and after them the better one. Collective.
void find_peak(const Team& team, double before, double after, RankSteps& rank, StepResult& result) {
  std::vector<double> sums{before, after};
  team.sum(sums);
  rank.peak = sums[1] > sums[0] ? after : before;
  result.missing = 1 - std::min(sums[0], sums[1]) / std::max(sums[0], sums[1]);
}

// Collective.
bool has_diverged(const TrainingSteps& steps, const Team& team) {
  std::vector<double> bad{steps.diverged() ? 1.0 : 0.0};
  team.max(bad);
  return bad[0] > 0;
}

StepResult::Training training_of(const train::Setup& setup) {
  const auto& settings = setup.settings;
  const auto& job = setup.team->job();
  StepResult::Training training;
  training.task = settings.task.name;
  training.model = config::chosen_name(settings, "model.name");
  training.device = setup.team->device().str();
  training.backend = setup.team->group() ? setup.backend : "no group";
  training.mode = word_of(settings.train.mode);
  training.precision = word_of(settings.train.precision);
  training.layout = word_of(settings.train.layout);
  training.kernels = word_of(settings.train.kernels);
  training.nodes = job.nodes;
  return training;
}

// Collective.
StepResult measure_steps(train::Setup& setup, const StepBench& asked) {
  const auto& team = *setup.team;
  StepResult result{.asked = asked, .training = training_of(setup)};
  result.crowded = has_more_ranks_than_cores(team);
  RankSteps rank;
  rank.host = team.job().host;
  rank.threads = setup.session->threads();
  Counted counted;
  const bool own_kernels = setup.settings.train.kernels != KernelChoice::exact;
  if (own_kernels) counted = counted_with_libtorch(setup);
  TrainingSteps steps(setup);
  if (!own_kernels) counted = counted_step(steps);
  const bool on_cpu = team.device().is_cpu();
  const double before = on_cpu ? measure_peak(team) : 0;
  const auto warm = warm_up(steps, team);
  result.warm_up = warm.steps + (own_kernels ? 0 : 1);
  const auto fitting = static_cast<int64_t>(std::min(kSeconds / warm.a_step, 1.0 * kMostSteps));
  result.steps = asked.steps.value_or(std::max(fitting, kFewest));
  log::info(format("timing {} steps, about {}", result.steps,
                   report::seconds_text(warm.a_step * static_cast<double>(result.steps))));
  const auto samples = steps.samples();
  time_steps(steps, team, result.steps, rank);
  result.diverged = has_diverged(steps, team);
  const auto taken = static_cast<double>(steps.samples() - samples) / static_cast<double>(result.steps);
  result.samples = taken * setup.mesh->data().world();
  const double part = counted.samples > 0 ? taken / static_cast<double>(counted.samples) : 1;
  rank.work = {counted.work.forward * part, counted.work.backward * part};
  if (on_cpu) find_peak(team, before, measure_peak(team), rank, result);
  for (const auto& text : team.all_gather(base::as_line(nlohmann::json(rank))))
    result.ranks.push_back(nlohmann::json::parse(text).get<RankSteps>());
  return result;
}

}  // namespace

void check(const StepBench& bench) {
  check_out(bench.out);
  if (!bench.steps || (*bench.steps >= 1 && *bench.steps <= kMostSteps)) return;
  throw InputError("--steps must be from 1 to 100000", "--steps",
                   "use 50, or omit it to run for about 5 seconds");
}

int step(const StepBench& asked) {
  auto setup = train::set_up(command_of(asked));
  check_place(*setup.team, asked.out);
  const auto result = measure_steps(setup, asked);
  report_on_first(
      *setup.team, asked.out, [&] { return page_of(result); },
      asked.json ? [&] { return json_of(result); } : std::function<std::string()>());
  return kDone;
}

}  // namespace lockstep::bench
