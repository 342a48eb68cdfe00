#include "tools/bench/overlap.h"

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/checkpoint/rng.h"
#include "tools/bench/overlap_report.h"
#include "tools/bench/report.h"
#include "tools/bench/trainee.h"
#include "tools/bench/units.h"
#include "tools/bench/ways.h"
#include "trainer/step/acting.h"
#include "trainer/step/feed.h"

namespace lockstep::bench {
namespace {

constexpr double kTiny = 1e-6;   // in MiB: less than any parameter has
constexpr int kWarmUpTurns = 2;  // in the second step DDP arranges its buckets again

// What the bench cannot do without stands first: a --set of the user's own comes later, and holds.
train::Command with_messages(train::Command command, const OverlapBench& asked) {
  command.sets.insert(command.sets.begin(), {"launch.device=cpu", "launch.backend=gloo",
                                             "launch.allreduce=ring", "data.workers=0"});
  command.must_match = {{"the command", "bench overlap"},
                        {"--latency", format("{}", asked.latency)},
                        {"--bandwidth", format("{}", asked.bandwidth)},
                        {"--steps", std::to_string(asked.steps)}};
  return command;
}

// What the bench would pass over in silence.
void check_unused(const Settings& settings) {
  struct Row {
    bool set;
    const char *key, *hint;
  };
  constexpr const char* kLeave = "leave it at its default: the bench does without";
  constexpr const char* kDelay = "leave it out: the bench slows messages down by --latency and --bandwidth";
  const Row rows[] = {{settings.ddp.has_hook(), "ddp.comm_hook", kLeave},
                      {settings.optim.sharded, "optim.sharded", kLeave},
                      {settings.train.accumulate > 1, "train.accumulate", kLeave},
                      {settings.launch.latency_us != 0, "launch.latency_us", kDelay},
                      {settings.launch.bandwidth_gbit != 0, "launch.bandwidth_gbit", kDelay}};
  for (const auto& row : rows)
    if (row.set) throw InputError("the bench does not measure this key", row.key, row.hint);
}

void check_setting(const train::Setup& setup) {
  const auto& settings = setup.settings;
  if (setup.team->world() < 2)
    throw InputError("one rank has nothing to exchange", "bench overlap",
                     "start more: mpirun -n 2 lockstep bench overlap");
  check_unused(settings);
  if (train::actor_of(setup))
    throw InputError(format("the bench reads batches of a data set, and task {} acts", settings.task.name),
                     "task.name", "take a config with a data set; lockstep bench step measures this one");
  if (settings.train.mode == TrainMode::ddp && setup.mesh->is_plain() &&
      settings.train.precision == Precision::fp32)
    return;
  throw InputError("the bench compares the ways of DDP alone, in fp32",
                   "train.mode, parallel, train.precision", "leave these keys at their defaults");
}

std::vector<Batch> some_batches(const train::Setup& setup, int64_t count) {
  const train::Feed feed(setup.settings, setup.data.train, *setup.team);
  std::vector<Batch> batches;
  while (static_cast<int64_t>(batches.size()) < count) {
    train::TrainingState state;
    auto epoch = feed.epoch(state);
    for (auto& step : epoch) {
      for (auto& batch : step) batches.push_back(batch);
      if (static_cast<int64_t>(batches.size()) >= count) break;
    }
  }
  return batches;
}

double megabytes_of(const train::Setup& setup) {
  double bytes = 0;
  for (const auto& parameter : train::seeded_model(setup)->parameters())
    bytes += static_cast<double>(parameter.nbytes());
  return bytes / kMiB;
}

std::vector<Method> methods(double megabytes) {
  std::vector<Method> all = {{"compute only", Exchange::none},
                             {"after backward", Exchange::after_backward},
                             {"DDP's buckets", Exchange::in_buckets},
                             {"per parameter", Exchange::in_buckets, kTiny}};
  for (double part = 16; part >= 2; part /= 2)
    all.push_back({format("{:.2f} MiB", megabytes / part), Exchange::in_buckets, megabytes / part});
  all.push_back({"one bucket", Exchange::in_buckets, std::ceil(megabytes) + 1});
  return all;
}

// All do the same sums; with more than two ranks a ring adds in an order that depends on the bucket.
void check_losses(const Method& method, double loss, double wanted, int world) {
  const double most = world == 2 ? 0 : 1e-3 * std::abs(wanted);
  if (method.exchange == Exchange::none || std::abs(loss - wanted) <= most) return;
  throw Error(
      format("'{}' trained to the loss {}, and '{}' to {}", method.name, loss, "after backward", wanted),
      "bench overlap", "a bug of lockstep: please report it");
}

// All methods' steps on one batch, as the job saw them. A step lasts as long as the slowest rank's; the
// exchange as on the rank that came last and waited least: what others wait beyond that, they wait for its
// computing.
std::vector<Timing> turn(const train::Setup& setup, std::vector<Trainee>& trainees, const Batch& batch) {
  std::vector<double> values, losses;
  const auto generator = rng_state().clone();  // what Dropout draws, each draws
  for (auto& trainee : trainees) {
    set_rng_state(generator);
    const auto step = trainee.step(batch);
    values.insert(values.end(), {step.seconds, -step.busy, -step.shows});
    losses.push_back(step.loss);
  }
  setup.team->max(values);
  setup.team->sum(losses);
  std::vector<Timing> timings;
  for (size_t i = 0; i < trainees.size(); ++i) {
    check_losses(trainees[i].method(), losses[i], losses[1], setup.team->world());
    timings.push_back({trainees[i].method().name, values[3 * i], -values[3 * i + 1], -values[3 * i + 2]});
  }
  return timings;
}

double median_of(const std::vector<std::vector<Timing>>& turns, size_t method, double Timing::*what) {
  std::vector<double> values;
  for (size_t i = kWarmUpTurns; i < turns.size(); ++i) values.push_back(turns[i][method].*what);
  return median(std::move(values));
}

// They take turns, so that what a machine does beside this meets all alike.
std::vector<Timing> timed(const train::Setup& setup, const std::vector<Method>& methods,
                          const std::vector<Batch>& batches) {
  std::vector<Trainee> trainees;
  for (const auto& method : methods) trainees.emplace_back(setup, method);
  std::vector<std::vector<Timing>> turns;
  for (const auto& batch : batches) turns.push_back(turn(setup, trainees, batch));
  std::vector<Timing> timings;
  for (size_t i = 0; i < methods.size(); ++i)
    timings.push_back({methods[i].name, median_of(turns, i, &Timing::seconds),
                       median_of(turns, i, &Timing::busy), median_of(turns, i, &Timing::shows)});
  return timings;
}

}  // namespace

void check(const OverlapBench& bench) {
  check_out(bench.out);
  if (bench.steps >= 1 && bench.steps <= 1000) return;
  throw InputError("--steps is a number from 1 to 1000", "--steps", "8 is usual");
}

int overlap(const OverlapBench& asked) {
  check(asked);
  const auto setup = train::set_up(with_messages(asked.command, asked));
  check_setting(setup);
  auto& all_reduce = all_reduce_of(setup.team->group());
  setup.team->from_first([&] {
    check_place(asked.out);
    return std::string();
  });
  const auto batches = some_batches(setup, asked.steps + kWarmUpTurns);
  OverlapFound found{.asked = asked,
                     .world = setup.team->world(),
                     .algorithm = setup.settings.launch.allreduce,
                     .task = setup.settings.task.name,
                     .megabytes = megabytes_of(setup)};
  const auto compared = methods(found.megabytes);
  for (const auto& delay : {Delay{}, Delay{asked.latency, asked.bandwidth}}) {
    setup.team->barrier();
    all_reduce.set_delay(delay);
    found.networks.push_back({delay.latency, delay.bytes_per_second, timed(setup, compared, batches)});
  }
  setup.team->from_first([&] {
    tell(found);
    return std::string();
  });
  return kDone;
}

}  // namespace lockstep::bench
