#include "tools/bench/step_report.h"

#include <algorithm>
#include <numeric>

#include "lockstep/base/format.h"
#include "lockstep/base/text.h"

namespace lockstep::bench {
namespace {

using nlohmann::ordered_json;
using report::Table;
using train::Phase;

constexpr double kUneven = 0.05;     // of own work: less is noise
constexpr double kUnevenPeak = 0.2;  // of a peak: less is noise

// --- tables, bars, lines ---

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

std::vector<std::string> row_of(const std::string& name, const Spread& spread, double whole, double factor,
                                bool several) {
  const auto number = [factor](double seconds) { return format("{:.1f}", seconds * factor); };
  std::vector<std::string> row = {name, number(spread.mean),
                                  format("{:.0f}", whole > 0 ? 100 * spread.mean / whole : 0)};
  if (several)
    row.insert(row.end(), {number(spread.least), number(spread.median), number(spread.most),
                           format("rank {}", spread.at_most)});
  return row;
}

std::string ranks_text(size_t count) {
  return format("{} rank{}", count, count == 1 ? "" : "s");
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

report::Bars phase_bars(const std::vector<RankSteps>& ranks) {
  report::Bars bars{
      .title = "Where a step's time goes", .y_label = "time (s)", .names = {}, .parts = {}, .values = {}};
  for (size_t i = 0; i < train::kPhases; ++i) bars.parts.emplace_back(train::name_of(static_cast<Phase>(i)));
  const auto add = [&](const std::string& name, const train::PhaseSeconds& phases) {
    bars.names.push_back(name);
    bars.values.emplace_back(phases.begin(), phases.end());
  };
  add(ranks.size() == 1 ? "a step" : format("mean of {}", ranks_text(ranks.size())), mean_phases(ranks));
  const auto [slowest, fastest] = ends(ranks);
  if (ranks[fastest].own_work() >= (1 - kUneven) * ranks[slowest].own_work()) return bars;
  add(format("rank {}, most work", slowest), ranks[slowest].phases);
  add(format("rank {}, least", fastest), ranks[fastest].phases);
  return bars;
}

Table speed_table(const StepResult& result) {
  Table table = {{"arithmetic", "a step", "a second", "of peak"}};
  for (const auto& part : step_parts()) {
    if (!result.is_counted() || (part.key != std::string("step") && !result.has_peak())) continue;
    const auto speed = speed_of(part, result.ranks);
    table.push_back({part.name, report::work_text(speed.a_step), report::work_text(speed.a_second) + "/s",
                     report::percent_text(speed.of_peak)});
  }
  return table;
}

std::string headline(const StepResult& result) {
  const auto& training = result.training;
  const auto& first = result.ranks.front();
  return format("{}, {}: {} on {} node{}, {} thread{} each, {}\n{}, {}, {}, kernels {}, {}", training.task,
                training.model.empty() ? "the task's own model" : training.model,
                ranks_text(result.ranks.size()), training.nodes, training.nodes == 1 ? "" : "s",
                first.threads, first.threads == 1 ? "" : "s", training.device, training.mode,
                training.precision, training.layout, training.kernels, training.backend);
}

std::string steps_line(const StepResult& result) {
  const auto scale = scale_of(result.ranks);
  const auto mean = spread_over(result.ranks, &RankSteps::step).mean;
  const auto longest = spread_over(result.ranks, &RankSteps::longest).most;
  const auto least = spread_over(result.ranks, &RankSteps::least).least;
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

std::string peak_text(const StepResult& result) {
  double peak = 0;
  for (const auto& rank : result.ranks) peak += rank.peak;
  return format("peak of {} at once: {}/s (large fp32 matrix products)", ranks_text(result.ranks.size()),
                report::work_text(peak));
}

void note_peaks(const StepResult& result, std::vector<std::string>& notes) {
  const auto peaks = spread_over(result.ranks, &RankSteps::peak);
  if (peaks.least < (1 - kUnevenPeak) * peaks.most)
    notes.push_back(format("the ranks' peaks differ: {}/s to {}/s (rank {})", report::work_text(peaks.least),
                           report::work_text(peaks.most), peaks.at_most));
  if (result.missing > kUnevenPeak)
    notes.push_back(format("the machine was unsteady: its peak differed by {} before and after the steps",
                           report::percent_text(result.missing)));
}

ordered_json phases_json(const train::PhaseSeconds& phases) {
  ordered_json json;
  for (size_t i = 0; i < phases.size(); ++i) json[train::name_of(static_cast<Phase>(i))] = phases[i];
  return json;
}

ordered_json rank_json(const RankSteps& rank, size_t number) {
  return {{"rank", number},
          {"host", rank.host},
          {"threads", rank.threads},
          {"step", rank.step()},
          {"median", rank.median},
          {"min", rank.least},
          {"max", rank.longest},
          {"phases", phases_json(rank.phases)},
          {"own_work", rank.own_work()},
          {"flop_forward", rank.work.forward},
          {"flop_backward", rank.work.backward},
          {"peak_flops", rank.peak}};
}

}  // namespace

double RankSteps::step() const {
  return std::accumulate(phases.begin(), phases.end(), 0.0);
}

double RankSteps::own_work() const {
  return step() - phase(Phase::waiting) - phase(Phase::other);
}

Spread spread_over(const std::vector<RankSteps>& ranks, const OfRank& number) {
  std::vector<double> numbers;
  for (const auto& rank : ranks) numbers.push_back(number(rank));
  return spread_of(std::move(numbers));
}

const std::vector<StepPart>& step_parts() {
  using Rank = const RankSteps&;
  static constexpr auto all = [](Rank rank) { return rank.work.all(); };
  static constexpr auto forward = [](Rank rank) { return rank.phase(Phase::forward); };
  static constexpr auto backward = [](Rank rank) { return rank.phase(Phase::backward); };
  static const std::vector<StepPart> parts = {
      {"forward", "forward", [](Rank rank) { return rank.work.forward; }, forward},
      {"backward", "backward", [](Rank rank) { return rank.work.backward; }, backward},
      {"both", "forward and backward", all, [](Rank rank) { return forward(rank) + backward(rank); }},
      {"step", "the whole step", all, [](Rank rank) { return rank.step(); }}};
  return parts;
}

Speed speed_of(const StepPart& part, const std::vector<RankSteps>& ranks) {
  Speed speed;
  double peak = 0;
  for (const auto& rank : ranks) {
    speed.a_step += part.work(rank);
    if (part.seconds(rank) > 0) speed.a_second += part.work(rank) / part.seconds(rank);
    peak += rank.peak;
  }
  if (peak > 0) speed.of_peak = speed.a_second / peak;
  return speed;
}

report::Table phase_table(const std::vector<RankSteps>& ranks) {
  const bool several = ranks.size() > 1;
  const auto scale = scale_of(ranks);
  Table table = {{format("{} per step", scale.name), "mean", "%"}};
  if (several) table[0].insert(table[0].end(), {"min", "median", "max", "most on"});
  const auto whole = spread_over(ranks, &RankSteps::step);
  for (size_t i = 0; i < train::kPhases; ++i) {
    const auto spread = spread_over(ranks, [i](const RankSteps& rank) { return rank.phases[i]; });
    table.push_back(row_of(train::name_of(static_cast<Phase>(i)), spread, whole.mean, scale.factor, several));
  }
  table.push_back(row_of("step", whole, whole.mean, scale.factor, several));
  return table;
}

std::vector<std::string> notes_of(const StepResult& result) {
  std::vector<RankTime> times;
  for (const auto& rank : result.ranks) times.push_back({rank.host, rank.processors});
  auto notes = busy_nodes(times);
  const auto& training = result.training;
  if (result.crowded) notes.emplace_back("there are more ranks than cores, so ranks wait for a core");
  if (result.diverged)
    notes.emplace_back("a loss was not a number: `lockstep train` with this config stops there");
  if (!result.has_peak()) notes.emplace_back("phases are GPU time; the peak of a GPU is not measured");
  if (training.precision != "fp32")
    notes.push_back(format("the peak is for fp32; {} has its own instructions", training.precision));
  if (training.kernels != "exact")
    notes.emplace_back("the operations are those of libtorch: lockstep's own kernels may need fewer");
  if (!result.is_counted())
    notes.emplace_back("there was no matrix product or convolution, so operations are not counted");
  if (result.has_peak()) note_peaks(result, notes);
  return notes;
}

report::Page page_of(const StepResult& result) {
  report::Page page("lockstep bench step");
  page.section("What was trained");
  page.text(headline(result) + "\n" + steps_line(result));
  page.section("Where the time goes");
  page.table(phase_table(result.ranks));
  if (result.ranks.size() > 1) page.text(slowest_line(result));
  page.bars(phase_bars(result.ranks));
  const auto speeds = speed_table(result);
  page.section("Distance from the peak");
  if (speeds.size() > 1) page.table(speeds);
  if (result.has_peak()) page.text(peak_text(result));
  for (const auto& note : notes_of(result)) page.note(base::wrapped("- " + note, 78));
  return page;
}

std::string json_of(const StepResult& result) {
  const auto& training = result.training;
  const double step = spread_over(result.ranks, &RankSteps::step).mean;
  ordered_json json = {{"schema", 1},
                       {"config", result.asked.command.config},
                       {"program", result.asked.command.program},
                       {"task", training.task},
                       {"model", training.model},
                       {"device", training.device},
                       {"backend", training.backend},
                       {"mode", training.mode},
                       {"precision", training.precision},
                       {"layout", training.layout},
                       {"kernels", training.kernels},
                       {"world", result.ranks.size()},
                       {"nodes", training.nodes},
                       {"warm_up", result.warm_up},
                       {"steps", result.steps},
                       {"samples_a_step", result.samples},
                       {"seconds_a_step", step},
                       {"samples_per_second", result.samples / step},
                       {"phases", phases_json(mean_phases(result.ranks))}};
  for (const auto& part : step_parts()) {
    const auto speed = speed_of(part, result.ranks);
    json["arithmetic"][part.key] = {
        {"flop", speed.a_step}, {"flops", speed.a_second}, {"of_peak", speed.of_peak}};
  }
  json["notes"] = notes_of(result);
  json["ranks"] = ordered_json::array();
  for (size_t i = 0; i < result.ranks.size(); ++i) json["ranks"].push_back(rank_json(result.ranks[i], i));
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::bench
