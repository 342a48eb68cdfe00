// `lockstep bench step`: the measuring, and what it found in words, tables, bars and JSON.
#include <algorithm>
#include <numeric>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "tools/bench/measure.h"
#include "tools/bench/work.h"
#include "trainer/config/keys.h"

namespace lockstep::bench {
namespace {

using nlohmann::ordered_json;
using report::Table;
using train::Phase;

constexpr int64_t kMostSteps = 100'000;
constexpr int64_t kFewest = 3;  // however long they take: DDP arranges its buckets in the second
constexpr double kSeconds = 5;  // of timed steps, without --steps
constexpr int64_t kWarmSteps = 10;
constexpr double kWarmSeconds = 0.3, kWarmAtMost = 2;

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
    const auto begin = Clock::now();
    steps.take();
    steps.read_pending();
    std::vector<double> slowest{since(begin)};
    team.max(slowest);
    seconds.push_back(slowest[0]);
    passed += slowest[0];
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
  const auto before = steps.samples();
  const auto work = count_work([&] { steps.take(); });
  return {work, steps.samples() - before};
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
  rank.median = spread.median, rank.min = spread.least, rank.max = spread.most;
}

ordered_json training_of(const train::Setup& setup) {
  const auto& settings = setup.settings;
  return {{"task", settings.task.name},
          {"model", config::chosen_name(settings, "model.name")},
          {"device", setup.team->device().str()},
          {"backend", setup.team->group() ? setup.backend : "no group"},
          {"mode", word_of(settings.train.mode)},
          {"precision", word_of(settings.train.precision)},
          {"layout", word_of(settings.train.layout)},
          {"kernels", word_of(settings.train.kernels)}};
}

// Collective.
StepResult measure_steps(train::Setup& setup, const StepBench& asked) {
  const auto& team = *setup.team;
  StepResult result{.asked = asked, .training = training_of(setup), .nodes = team.job().nodes};
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
  if (on_cpu) rank.peak_flops = measure_peak(team);
  const auto warm = warm_up(steps, team);
  result.warm_up = warm.steps + (own_kernels ? 0 : 1);
  const auto fitting = static_cast<int64_t>(std::min(kSeconds / warm.a_step, 1.0 * kMostSteps));
  result.steps = asked.steps.value_or(std::max(fitting, kFewest));
  log::info(format("timing {} steps, about {}", result.steps,
                   report::seconds_text(warm.a_step * static_cast<double>(result.steps))));
  const auto samples = steps.samples();
  time_steps(steps, team, result.steps, rank);
  result.diverged = is_on_any_rank(team, steps.losses().bad().has_value());
  const auto taken = static_cast<double>(steps.samples() - samples) / static_cast<double>(result.steps);
  result.samples = taken * setup.mesh->data().world();
  const double part = counted.samples > 0 ? taken / static_cast<double>(counted.samples) : 1;
  rank.flop_forward = counted.work.forward * part;
  rank.flop_backward = counted.work.backward * part;
  if (on_cpu) rank.peak_flops = std::max(rank.peak_flops, measure_peak(team));
  for (const auto& text : team.all_gather(base::as_line(nlohmann::json(rank))))
    result.ranks.push_back(nlohmann::json::parse(text).get<RankSteps>());
  return result;
}

// --- the result ---

constexpr double kUneven = 0.05;     // of own work: less is noise
constexpr double kUnevenPeak = 0.2;  // of a peak: less is noise

// The unit of a step's times.
struct Scale {
  const char* name;
  double factor;
};

Scale scale_of(const std::vector<RankSteps>& ranks) {
  const double step = ranks.front().step();
  if (step >= 10) return {"seconds", 1};
  return step < 2e-3 ? Scale{"microseconds", 1e6} : Scale{"milliseconds", 1e3};
}

using OfRank = std::function<double(const RankSteps&)>;

Spread spread_over(const std::vector<RankSteps>& ranks, const OfRank& number) {
  std::vector<double> numbers;
  for (const auto& rank : ranks) numbers.push_back(number(rank));
  return spread_of(std::move(numbers));
}

// The ranks with the most and with the least work of their own.
std::pair<size_t, size_t> ends(const std::vector<RankSteps>& ranks) {
  const auto [least, most] = std::ranges::minmax_element(ranks, {}, &RankSteps::own_work);
  return {most - ranks.begin(), least - ranks.begin()};
}

train::PhaseSeconds mean_phases(const std::vector<RankSteps>& ranks) {
  train::PhaseSeconds mean{};
  for (const auto& rank : ranks)
    for (size_t i = 0; i < mean.size(); ++i) mean[i] += rank.phases[i] / static_cast<double>(ranks.size());
  return mean;
}

std::vector<report::Bar> phase_bars(const std::vector<RankSteps>& ranks) {
  const auto bar = [](const std::string& name, const train::PhaseSeconds& phases) {
    return report::Bar{name, {phases.begin(), phases.end()}};
  };
  const auto all =
      ranks.size() == 1 ? "a step" : format("mean of {}", base::counted(std::ssize(ranks), "rank"));
  std::vector<report::Bar> bars = {bar(all, mean_phases(ranks))};
  const auto [slowest, fastest] = ends(ranks);
  if (ranks[fastest].own_work() >= (1 - kUneven) * ranks[slowest].own_work()) return bars;
  bars.push_back(bar(format("rank {}, most work", slowest), ranks[slowest].phases));
  bars.push_back(bar(format("rank {}, least", fastest), ranks[fastest].phases));
  return bars;
}

Table speed_table(const StepResult& result) {
  Table table = {{"arithmetic", "a step", "a second", "of peak"}};
  for (const auto& part : speeds_of(result.ranks))
    if (result.has_peak() || part.key == std::string("step"))
      table.push_back({part.name, report::work_text(part.a_step), report::work_text(part.a_second) + "/s",
                       report::percent_text(part.of_peak)});
  return table;
}

std::string headline(const StepResult& result) {
  const auto word = [&](const char* key) { return result.training.at(key).get<std::string>(); };
  return format("{}, {}: {} on {}, {} each, {}\n{}, {}, {}, kernels {}, {}", word("task"),
                word("model").empty() ? "the task's own model" : word("model"),
                base::counted(std::ssize(result.ranks), "rank"), base::counted(result.nodes, "node"),
                base::counted(result.ranks.front().threads, "thread"), word("device"), word("mode"),
                word("precision"), word("layout"), word("kernels"), word("backend"));
}

std::string steps_line(const StepResult& result) {
  const auto scale = scale_of(result.ranks);
  const auto mean = spread_over(result.ranks, &RankSteps::step).mean;
  const auto longest = spread_over(result.ranks, &RankSteps::max).most;
  const auto least = spread_over(result.ranks, &RankSteps::min).least;
  const auto median = spread_over(result.ranks, &RankSteps::median).median;
  return format(
      "{} steps after {} to warm up, {:.0f} samples per step: {:.0f} samples per second\na step takes {:.1f} "
      "{} (median {:.1f}, {:.1f} to {:.1f})",
      result.steps, result.warm_up, result.samples, result.samples / mean, mean * scale.factor, scale.name,
      median * scale.factor, least * scale.factor, longest * scale.factor);
}

std::string slowest_line(const StepResult& result) {
  const auto scale = scale_of(result.ranks);
  const auto [slowest, fastest] = ends(result.ranks);
  const auto& rank = result.ranks[slowest];
  return format("most work: rank {} on {}, {:.1f} of {:.1f} {} (mean {:.1f})", slowest,
                base::printable(rank.host), rank.own_work() * scale.factor, rank.step() * scale.factor,
                scale.name, spread_over(result.ranks, &RankSteps::own_work).mean * scale.factor);
}

ordered_json phases_json(const train::PhaseSeconds& phases) {
  ordered_json json;
  for (size_t i = 0; i < phases.size(); ++i) json[train::name_of(static_cast<Phase>(i))] = phases[i];
  return json;
}

ordered_json rank_json(const RankSteps& rank, size_t number) {
  ordered_json json = {{"rank", number}, {"step", rank.step()}, {"own_work", rank.own_work()}};
  json.update(ordered_json(nlohmann::json(rank)));
  json["phases"] = phases_json(rank.phases);
  return json;
}

}  // namespace

double RankSteps::step() const {
  return std::accumulate(phases.begin(), phases.end(), 0.0);
}

double RankSteps::own_work() const {
  return step() - phase(Phase::waiting) - phase(Phase::other);
}

std::vector<Speed> speeds_of(const std::vector<RankSteps>& ranks) {
  std::vector<Speed> speeds = {{"forward", "forward"},
                               {"backward", "backward"},
                               {"both", "forward and backward"},
                               {"step", "the whole step"}};
  double peak = 0;
  for (const auto& rank : ranks) {
    const double forward = rank.phase(Phase::forward), backward = rank.phase(Phase::backward);
    const double all = rank.flop_forward + rank.flop_backward;
    const double work[] = {rank.flop_forward, rank.flop_backward, all, all};
    const double seconds[] = {forward, backward, forward + backward, rank.step()};
    for (size_t i = 0; i < speeds.size(); ++i) {
      speeds[i].a_step += work[i];
      if (seconds[i] > 0) speeds[i].a_second += work[i] / seconds[i];
    }
    peak += rank.peak_flops;
  }
  for (auto& speed : speeds) speed.of_peak = peak > 0 ? speed.a_second / peak : 0;
  return speeds;
}

report::Table phase_table(const std::vector<RankSteps>& ranks) {
  const bool several = ranks.size() > 1;
  const auto scale = scale_of(ranks);
  const auto number = [&](double seconds) { return format("{:.1f}", seconds * scale.factor); };
  const auto whole = spread_over(ranks, &RankSteps::step);
  Table table = {{format("{} per step", scale.name), "mean", "%"}};
  if (several) table[0].insert(table[0].end(), {"min", "median", "max", "max on"});
  const auto add = [&](const char* name, const Spread& spread) {
    table.push_back(
        {name, number(spread.mean), format("{:.0f}", whole.mean > 0 ? 100 * spread.mean / whole.mean : 0)});
    if (several)
      table.back().insert(table.back().end(), {number(spread.least), number(spread.median),
                                               number(spread.most), format("rank {}", spread.at_most)});
  };
  for (size_t i = 0; i < train::kPhases; ++i)
    add(train::name_of(static_cast<Phase>(i)),
        spread_over(ranks, [i](const RankSteps& rank) { return rank.phases[i]; }));
  add("step", whole);
  return table;
}

std::vector<std::string> notes_of(const StepResult& result) {
  auto notes = busy_nodes(result.ranks);
  const auto word = [&](const char* key) { return result.training.at(key).get<std::string>(); };
  if (result.crowded) notes.emplace_back("there are more ranks than cores, so ranks wait for a core");
  if (result.diverged)
    notes.emplace_back("a loss was not a number: `lockstep train` with this config stops there");
  if (!result.has_peak()) notes.emplace_back("phases are GPU time; the peak of a GPU is not measured");
  if (word("precision") != "fp32")
    notes.push_back(format("the peak is for fp32; {} has its own instructions", word("precision")));
  if (word("kernels") != "exact")
    notes.emplace_back("the operations are those of libtorch: lockstep's own kernels may need fewer");
  if (!result.is_counted())
    notes.emplace_back("there was no matrix product or convolution, so operations are not counted");
  const auto peaks = spread_over(result.ranks, &RankSteps::peak_flops);
  if (result.has_peak() && peaks.least < (1 - kUnevenPeak) * peaks.most)
    notes.push_back(format("the ranks' peaks differ: {}/s to {}/s (rank {})", report::work_text(peaks.least),
                           report::work_text(peaks.most), peaks.at_most));
  return notes;
}

report::Page page_of(const StepResult& result) {
  report::Page page("lockstep bench step");
  page.section("What was trained");
  page.text(headline(result) + "\n" + steps_line(result));
  page.section("Where the time goes");
  page.table(phase_table(result.ranks));
  if (result.ranks.size() > 1) page.text(slowest_line(result));
  std::vector<std::string> phases;
  for (size_t i = 0; i < train::kPhases; ++i) phases.emplace_back(train::name_of(static_cast<Phase>(i)));
  page.bars("Where a step's time goes", "time (s)", phases, phase_bars(result.ranks));
  page.section("Distance from the peak");
  if (result.is_counted()) page.table(speed_table(result));
  const double peak =
      spread_over(result.ranks, &RankSteps::peak_flops).mean * static_cast<double>(result.ranks.size());
  if (result.has_peak())
    page.text(format("peak of {} at once: {}/s (large fp32 matrix products)",
                     base::counted(std::ssize(result.ranks), "rank"), report::work_text(peak)));
  for (const auto& note : notes_of(result)) page.note(base::wrapped("- " + note, 78));
  return page;
}

std::string json_of(const StepResult& result) {
  const double step = spread_over(result.ranks, &RankSteps::step).mean;
  ordered_json json = {
      {"schema", 1}, {"config", result.asked.command.config}, {"program", result.asked.command.program}};
  json.update(result.training);
  json.update({{"world", result.ranks.size()},
               {"nodes", result.nodes},
               {"warm_up", result.warm_up},
               {"steps", result.steps},
               {"samples_a_step", result.samples},
               {"seconds_a_step", step},
               {"samples_per_second", result.samples / step},
               {"phases", phases_json(mean_phases(result.ranks))}});
  for (const auto& part : speeds_of(result.ranks))
    json["arithmetic"][part.key] = {
        {"flop", part.a_step}, {"flops", part.a_second}, {"of_peak", part.of_peak}};
  json["notes"] = notes_of(result);
  json["ranks"] = ordered_json::array();
  for (size_t i = 0; i < result.ranks.size(); ++i) json["ranks"].push_back(rank_json(result.ranks[i], i));
  return base::as_lines(json);
}

void check(const StepBench& bench) {
  check_out(bench.out);
  if (!bench.steps || (*bench.steps >= 1 && *bench.steps <= kMostSteps)) return;
  throw InputError("--steps must be from 1 to 100000", "--steps",
                   "use 50, or omit it to run for about 5 seconds");
}

int step(const StepBench& asked) {
  auto command = asked.command;
  command.must_match = {{"the command", "bench step"}, {"--steps", std::to_string(asked.steps.value_or(0))}};
  auto setup = train::set_up(command);
  check_place(*setup.team, asked.out);
  const auto result = measure_steps(setup, asked);
  report_on_first(*setup.team, asked.out, page_of(result), asked.json ? json_of(result) : "");
  return kDone;
}

}  // namespace lockstep::bench
