// `lockstep bench overlap`.
#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/checkpoint/rng.h"
#include "lockstep/comm/algorithm_backend.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/ddp.h"
#include "tools/bench/bench.h"
#include "tools/bench/measure.h"
#include "trainer/setup/setup.h"
#include "trainer/step/feed.h"

namespace lockstep::bench {
namespace {

using nlohmann::ordered_json;

constexpr double kTiny = 1e-6;   // in MiB: less than any parameter has
constexpr int kWarmUpTurns = 2;  // in the second step DDP arranges its buckets again
constexpr size_t kSweep = 3;     // the method with which the sweep over bucket sizes begins: per parameter

enum class Exchange { none, after_backward, in_buckets };

struct Method {
  std::string name;
  Exchange exchange;
  std::optional<double> bucket_cap_mb = {};  // in_buckets: DDP's
};

// With that delay, in the order of methods().
struct NetworkTimings {
  Delay delay;
  std::vector<Timing> timings;
};

comm::AlgorithmBackend& all_reduce_of(const ProcessGroup& group) {
  auto* backend = dynamic_cast<comm::AlgorithmBackend*>(group->getBackend(c10::kCPU).get());
  if (backend) return *backend;
  throw InputError("this bench delays messages, but the backend's own all-reduce sends none",
                   "launch.allreduce", "set it to an algorithm, such as ring");
}

// A model in training, whose gradients are exchanged in one of the ways that are compared.
class TrainedModelRun {
 public:
  /// From the config's seed. Collective.
  TrainedModelRun(const train::Setup& setup, Method method)
      : setup_(setup),
        method_(std::move(method)),
        model_(ddp(train::seeded_model(setup), setup.team->group(),
                   {.find_unused_parameters = setup.settings.ddp.find_unused_parameters,
                    .bucket_cap_mb = method_.bucket_cap_mb})),
        optimizer_(make_optimizer(setup.settings.optim, model_->parameters())),
        last_gradient_(std::make_shared<Clock::time_point>()) {
    // Backward reaches the first parameters last: from there on it waits for the exchange alone.
    auto parameters = model_->parameters();
    for (size_t i = 0; i < std::min<size_t>(2, parameters.size()); ++i) {
      if (parameters[i].requires_grad())
        parameters[i].register_hook([last = last_gradient_](const at::Tensor&) { *last = Clock::now(); });
    }
  }

  /// Forward, backward, exchange, update; a barrier comes first. Collective.
  Timing step(const Batch& batch) {
    const auto& all_reduce = all_reduce_of(setup_.team->group());
    setup_.team->barrier();
    const double busy = all_reduce.busy();
    const auto begin = Clock::now();
    optimizer_->zero_grad();
    Timing step;
    if (method_.exchange == Exchange::in_buckets) {
      step.loss = learn(batch);
    } else {
      const auto alone = model_->no_sync();
      step.loss = learn(batch);
    }
    if (method_.exchange == Exchange::after_backward) exchange_all();
    if (method_.exchange != Exchange::none) step.shows = since(*last_gradient_);
    optimizer_->step();
    step.seconds = since(begin);
    step.busy = all_reduce.busy() - busy;
    return step;
  }

 private:
  double learn(const Batch& batch) {
    const auto loss = setup_.task->loss(model_->forward(batch.input), batch.target, {});
    loss.backward();
    return loss.item<double>();
  }

  // All gradients in one row, when all are there.
  void exchange_all() {
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> rows, gradients;
    for (const auto& parameter : model_->parameters()) {
      if (!parameter.grad().defined()) continue;
      gradients.push_back(parameter.grad());
      rows.push_back(gradients.back().reshape({-1}));
    }
    std::vector<at::Tensor> all = {at::cat(rows).div_(setup_.team->world())};
    setup_.team->group()->allreduce(all)->wait();
    int64_t at = 0;
    for (auto& gradient : gradients) {
      gradient.copy_(all[0].narrow(0, at, gradient.numel()).view(gradient.sizes()));
      at += gradient.numel();
    }
  }

  const train::Setup& setup_;
  Method method_;
  std::shared_ptr<DistributedDataParallel<Net>> model_;
  std::unique_ptr<Optimizer> optimizer_;
  std::shared_ptr<Clock::time_point> last_gradient_;
};

// The bench's own settings come first, so that a --set of the user's overrides them.
train::Command with_messages(train::Command command, const OverlapBench& asked) {
  command.sets.insert(command.sets.begin(), {"launch.device=cpu", "launch.backend=gloo",
                                             "launch.allreduce=ring", "data.workers=0"});
  command.must_match = {{"the command", "bench overlap"},
                        {"--latency", format("{}", asked.latency)},
                        {"--bandwidth", format("{}", asked.bandwidth)},
                        {"--steps", std::to_string(asked.steps)}};
  return command;
}

// Keys that the bench would ignore.
void check_unused(const Settings& settings) {
  struct Row {
    bool set;
    const char *key, *hint;
  };
  constexpr const char* kLeave = "leave it at its default: the bench does not use it";
  constexpr const char* kDelay = "use --latency and --bandwidth instead";
  const Row rows[] = {{settings.ddp.has_hook(), "ddp.comm_hook", kLeave},
                      {settings.optim.sharded, "optim.sharded", kLeave},
                      {settings.train.accumulate > 1, "train.accumulate", kLeave},
                      {settings.launch.latency_us != 0, "launch.latency_us", kDelay},
                      {settings.launch.bandwidth_gbit != 0, "launch.bandwidth_gbit", kDelay}};
  for (const auto& row : rows)
    if (row.set) throw InputError("the bench does not support this key", row.key, row.hint);
}

void check_setting(const train::Setup& setup) {
  const auto& settings = setup.settings;
  if (setup.team->world() < 2)
    throw InputError("one rank has nothing to exchange", "bench overlap",
                     "start more: mpirun -n 2 lockstep bench overlap");
  check_unused(settings);
  if (train::actor_of(setup))
    throw InputError(format("the bench needs a data set; task {} generates samples", settings.task.name),
                     "task.name", "use a config with a data set, or run lockstep bench step");
  if (settings.train.mode == TrainMode::ddp && setup.mesh->is_plain() &&
      settings.train.precision == Precision::fp32)
    return;
  throw InputError("the bench compares only variants of DDP, in fp32",
                   "train.mode, parallel, train.precision", "leave these keys at their defaults");
}

std::vector<Batch> some_batches(const train::Setup& setup, int64_t count) {
  const train::Feed feed(setup.settings, setup.data.train, *setup.team);
  std::vector<Batch> batches;
  while (static_cast<int64_t>(batches.size()) < count) {
    train::TrainingState state;
    auto epoch = feed.epoch(state);
    while (epoch.next_step()) {
      while (const auto* batch = epoch.next_batch()) batches.push_back(*batch);
      if (static_cast<int64_t>(batches.size()) >= count) break;
    }
  }
  return batches;
}

double megabytes_of(const train::Setup& setup) {
  double bytes = 0;
  for (const auto& parameter : train::seeded_model(setup)->parameters())
    bytes += static_cast<double>(parameter.nbytes());
  return bytes / (1 << 20);
}

std::vector<Method> methods(double megabytes) {
  std::vector<Method> all = {{"compute only", Exchange::none},
                             {"after backward", Exchange::after_backward},
                             {"DDP's buckets", Exchange::in_buckets},
                             {"per parameter", Exchange::in_buckets, kTiny}};
  for (double part = 16; part >= 2; part /= 2)
    all.push_back({format("{:.3g} MiB", megabytes / part), Exchange::in_buckets, megabytes / part});
  all.push_back({"one bucket", Exchange::in_buckets, std::ceil(megabytes) + 1});
  return all;
}

// All do the same sums; with more than two ranks a ring adds in an order that depends on the bucket.
void check_losses(const Method& method, double loss, double wanted, int world) {
  const double most = world == 2 ? 0 : 1e-3 * std::abs(wanted);
  if (method.exchange == Exchange::none || std::abs(loss - wanted) <= most) return;
  throw Error(
      format("'{}' ended with loss {}, but '{}' with {}", method.name, loss, "after backward", wanted),
      "bench overlap", "report it: this is a bug in lockstep");
}

// The methods take turns, batch by batch. A step takes as long as on the slowest rank, and the exchange as
// long as on the rank that waited least: what others wait beyond that, they wait for its computing.
std::vector<Timing> timed(const train::Setup& setup, const std::vector<Method>& methods,
                          const std::vector<Batch>& batches) {
  std::vector<TrainedModelRun> runs;
  for (const auto& method : methods) runs.emplace_back(setup, method);
  at::Tensor generator;  // all draw the same numbers for Dropout
  std::vector<double> losses;
  const auto take_turn = [&](size_t method, int round) -> std::vector<double> {
    if (method == 0) generator = rng_state().clone();
    set_rng_state(generator);
    const auto step = runs[method].step(batches[static_cast<size_t>(round)]);
    losses.push_back(step.loss);
    if (losses.size() == methods.size()) {
      setup.team->sum(losses);
      for (size_t i = 0; i < losses.size(); ++i)
        check_losses(methods[i], losses[i], losses[1], setup.team->world());
      losses.clear();
    }
    return {step.seconds, -step.busy, -step.shows};
  };
  const auto medians = interleaved_medians(*setup.team, methods.size(), kWarmUpTurns,
                                           static_cast<int>(batches.size()) - kWarmUpTurns, take_turn);
  std::vector<Timing> timings;
  for (size_t i = 0; i < methods.size(); ++i)
    timings.push_back({methods[i].name, medians[i][0], -medians[i][1], -medians[i][2]});
  return timings;
}

// --- the result ---

std::string milliseconds(double seconds) {
  return format("{:.1f}", seconds * 1e3);
}

double hidden(const Timing& timing) {
  return std::max(0.0, timing.busy - timing.shows);
}

std::string network_text(const Delay& delay) {
  return delay.latency > 0 || delay.bytes_per_second > 0
             ? "simulated slow network: " + delay_text(delay.latency, delay.bytes_per_second)
             : std::string("real network");
}

// From a bucket for each parameter to one for all.
ordered_json sweep_of(const std::vector<NetworkTimings>& networks, double megabytes) {
  ordered_json chart = {
      {"title", "Step time by bucket size"}, {"x_label", "bucket_cap_mb"}, {"y_label", "time per step (s)"}};
  for (const auto& [delay, timings] : networks) {
    ordered_json line = {{"name", network_text(delay)}};
    const size_t count = timings.size() - kSweep;
    for (size_t i = 0; i < count; ++i) {
      const double part = i == 0 ? 0 : static_cast<double>(1 << (count - 1 - i));
      line["x"].push_back(i == 0 ? 0 : megabytes / part);
      line["y"].push_back(timings[kSweep + i].seconds);
    }
    chart["series"].push_back(line);
  }
  return chart;
}

report::Page page_of(const train::Setup& setup, int64_t steps, double megabytes,
                     const std::vector<NetworkTimings>& networks) {
  const int world = setup.team->world();
  report::Page page("lockstep bench overlap");
  page.section("What was trained");
  page.text(format("{}: {:.2f} MiB of gradients, {} ranks, all-reduce {}", setup.settings.task.name,
                   megabytes, world, setup.settings.launch.allreduce));
  page.text(format("all methods had the same losses{}; times are medians of {} steps, on the slowest rank",
                   world == 2 ? ", bit for bit" : " except for the order of the sums", steps));
  for (const auto& network : networks) {
    page.section(network_text(network.delay));
    page.table(table_of(network.timings));
    std::vector<report::Bar> bars;
    for (size_t i = 1; i <= kSweep; ++i) {
      const auto& one = network.timings[i];
      bars.push_back({one.name, {one.seconds - one.shows, one.shows}});
    }
    page.bars("A step: " + network_text(network.delay), "time (s)", {"computing", "exposed exchange"}, bars);
  }
  page.section("The size of the buckets");
  page.add("chart", sweep_of(networks, megabytes));
  return page;
}

}  // namespace

report::Table table_of(const std::vector<Timing>& timings) {
  report::Table table = {{"milliseconds", "step", "exchange", "exposed", "hidden", "hidden %"}};
  for (const auto& timing : timings) {
    const bool travels = timing.busy > 0;
    table.push_back({timing.name, milliseconds(timing.seconds), milliseconds(timing.busy),
                     milliseconds(timing.shows), milliseconds(hidden(timing)),
                     travels ? format("{:.0f}", 100 * hidden(timing) / timing.busy) : std::string("-")});
  }
  return table;
}

void check(const OverlapBench& bench) {
  check_out(bench.out);
  if (bench.steps >= 1 && bench.steps <= 1000) return;
  throw InputError("--steps must be from 1 to 1000", "--steps", "use 8");
}

int overlap(const OverlapBench& asked) {
  const auto setup = train::set_up(with_messages(asked.command, asked));
  check_setting(setup);
  auto& all_reduce = all_reduce_of(setup.team->group());
  check_place(*setup.team, asked.out);
  const auto batches = some_batches(setup, asked.steps + kWarmUpTurns);
  const double megabytes = megabytes_of(setup);
  const auto compared = methods(megabytes);
  std::vector<NetworkTimings> networks;
  for (const auto& delay : {Delay{}, Delay{asked.latency, asked.bandwidth}}) {
    setup.team->barrier();
    all_reduce.set_delay(delay);
    networks.push_back({delay, timed(setup, compared, batches)});
  }
  report_on_first(*setup.team, asked.out, page_of(setup, asked.steps, megabytes, networks));
  return kDone;
}

}  // namespace lockstep::bench
