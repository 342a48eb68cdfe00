#include "tools/bench/step_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/format.h"
#include "lockstep/base/json.h"
#include "lockstep/base/text.h"
#include "tools/report/numbers.h"

namespace lockstep::bench {
namespace {

using nlohmann::ordered_json;
using report::Table;
using train::Phase;

constexpr double kUneven = 0.05;     // of own work: less is noise
constexpr double kUnevenPeak = 0.2;  // of a peak: less is noise

// --- what ranks measured, together ---

double phase_of(const RankSteps& rank, Phase phase) {
  return rank.phases[static_cast<size_t>(phase)];
}

// A rank's numbers, in the order in which they are sent.
template <class Steps>
auto numbers_of(Steps& steps) {
  std::vector numbers = {&steps.median,
                         &steps.least,
                         &steps.longest,
                         &steps.work.forward,
                         &steps.work.backward,
                         &steps.peak.flops,
                         &steps.peak.bytes,
                         &steps.update_bytes,
                         &steps.update_holds,
                         &steps.cache,
                         &steps.processors.all,
                         &steps.processors.idle,
                         &steps.processors.stolen,
                         &steps.processors.own};
  for (auto& phase : steps.phases) numbers.push_back(&phase);
  return numbers;
}

struct Done {
  double amount, seconds;
};

Done done_of(const RankSteps& rank, StepPart part) {
  switch (part) {
    case StepPart::forward:
      return {rank.work.forward, phase_of(rank, Phase::forward)};
    case StepPart::backward:
      return {rank.work.backward, phase_of(rank, Phase::backward)};
    case StepPart::both:
      return {rank.work.all(), phase_of(rank, Phase::forward) + phase_of(rank, Phase::backward)};
    case StepPart::whole_step:
      return {rank.work.all(), rank.step()};
  }
  return {};
}

Speed together(const std::vector<Done>& done, double peak) {
  Speed speed;
  for (const auto& [amount, seconds] : done) {
    speed.a_step += amount;
    if (seconds > 0) speed.a_second += amount / seconds;
  }
  if (peak > 0) speed.of_peak = speed.a_second / peak;
  return speed;
}

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
  const auto [least, most] =
      std::minmax_element(ranks.begin(), ranks.end(),
                          [](const RankSteps& a, const RankSteps& b) { return a.own_work() < b.own_work(); });
  return {most - ranks.begin(), least - ranks.begin()};
}

bool is_uneven(const std::vector<RankSteps>& ranks) {
  const auto [slowest, fastest] = ends(ranks);
  return ranks[fastest].own_work() < (1 - kUneven) * ranks[slowest].own_work();
}

report::Bars phase_bars(const std::vector<RankSteps>& ranks) {
  report::Bars bars{
      .title = "Where a step's time goes", .y_label = "time (s)", .names = {}, .parts = {}, .values = {}};
  std::vector<double> mean;
  for (size_t i = 0; i < train::kPhases; ++i) {
    bars.parts.emplace_back(train::name_of(static_cast<Phase>(i)));
    double sum = 0;
    for (const auto& rank : ranks) sum += rank.phases[i];
    mean.push_back(sum / static_cast<double>(ranks.size()));
  }
  const auto add = [&](const std::string& name, std::vector<double> values) {
    bars.names.push_back(name);
    bars.values.push_back(std::move(values));
  };
  add(ranks.size() == 1 ? "a step" : format("mean of {}", ranks_text(ranks.size())), mean);
  if (!is_uneven(ranks)) return bars;
  const auto [slowest, fastest] = ends(ranks);
  for (const auto& [rank, word] : {std::pair(slowest, "most work"), std::pair(fastest, "least")}) {
    const auto& phases = ranks[rank].phases;
    add(format("rank {}, {}", rank, word), {phases.begin(), phases.end()});
  }
  return bars;
}

// What an update reads may still be in the cache from the step before, so that memory is not its limit.
bool is_cached(const StepFound& found) {
  return std::all_of(found.ranks.begin(), found.ranks.end(),
                     [](const RankSteps& rank) { return rank.update_holds < rank.cache; });
}

Table speed_table(const StepFound& found) {
  Table table = {{"arithmetic, memory", "a step", "a second", "of peak"}};
  for (const auto& [part, key, name] : kParts) {
    if (!found.is_counted() || (part != StepPart::whole_step && !found.has_parts())) continue;
    const auto speed = arithmetic(found.ranks, part);
    table.push_back({name, report::work_text(speed.a_step), report::work_text(speed.a_second) + "/s",
                     report::percent_text(speed.of_peak)});
  }
  const auto memory = update(found.ranks);
  if (memory.a_step > 0 && found.has_parts())
    table.push_back({"optimiser", report::decimal_bytes_text(memory.a_step),
                     report::decimal_bytes_text(memory.a_second) + "/s",
                     is_cached(found) ? "in cache" : report::percent_text(memory.of_peak)});
  return table;
}

std::string peak_text(const StepFound& found) {
  double flops = 0, bytes = 0;
  for (const auto& rank : found.ranks) {
    flops += rank.peak.flops;
    bytes += rank.peak.bytes;
  }
  return format(
      "peak of {} at once: {}/s (fp32 multiply-adds, {}-bit vectors)\n  and {}",
      ranks_text(found.ranks.size()), report::work_text(flops), vector_bits(),
      bytes > 0 ? report::decimal_bytes_text(bytes) + "/s (a sweep over memory)" : "memory not measured");
}

std::string headline(const StepFound& found) {
  const auto& training = found.training;
  const auto& first = found.ranks.front();
  return format("{}, {}: {} on {} node{}, {} thread{} each, {}\n{}, {}, {}, kernels {}, {}", training.task,
                training.model.empty() ? "the task's own model" : training.model,
                ranks_text(found.ranks.size()), training.nodes, training.nodes == 1 ? "" : "s", first.threads,
                first.threads == 1 ? "" : "s", training.device, training.mode, training.precision,
                training.layout, training.kernels, training.backend);
}

std::string steps_line(const StepFound& found) {
  const auto scale = scale_of(found.ranks);
  const auto mean = spread_over(found.ranks, &RankSteps::step).mean;
  const auto longest = spread_over(found.ranks, &RankSteps::longest).most;
  const auto least = spread_over(found.ranks, &RankSteps::least).least;
  const auto median = spread_over(found.ranks, &RankSteps::median).median;
  return format(
      "{} steps after {} to warm up, {:.0f} samples a step: {:.0f} samples a second\n"
      "a step takes {:.1f} {} (median {:.1f}, {:.1f} to {:.1f})",
      found.steps, found.warm_up, found.samples, found.samples / mean, mean * scale.factor, scale.name,
      median * scale.factor, least * scale.factor, longest * scale.factor);
}

std::string slowest_line(const StepFound& found) {
  const auto scale = scale_of(found.ranks);
  const auto [slowest, fastest] = ends(found.ranks);
  const auto& rank = found.ranks[slowest];
  return format("most work of its own: rank {} on {}, {:.1f} of {:.1f} {} (mean {:.1f})", slowest,
                base::printable(rank.host), rank.own_work() * scale.factor, rank.step() * scale.factor,
                scale.name, spread_over(found.ranks, &RankSteps::own_work).mean * scale.factor);
}

void note_peaks(const StepFound& found, std::vector<std::string>& notes) {
  const auto peaks = spread_over(found.ranks, [](const RankSteps& rank) { return rank.peak.flops; });
  if (peaks.least < (1 - kUnevenPeak) * peaks.most)
    notes.push_back(format("the ranks' peaks differ: {}/s to {}/s (rank {})", report::work_text(peaks.least),
                           report::work_text(peaks.most), peaks.at_most));
  if (found.missing > kUnevenPeak)
    notes.push_back(format("the machine was uneven: {} of its peak was not there before or after the steps",
                           report::percent_text(found.missing)));
  if (arithmetic(found.ranks, StepPart::both).of_peak > 1)
    notes.emplace_back("above 100 %: libtorch has wider vectors than the probe, or needs fewer operations");
}

ordered_json phases_json(const train::PhaseSeconds& phases) {
  ordered_json json;
  for (size_t i = 0; i < phases.size(); ++i) json[train::name_of(static_cast<train::Phase>(i))] = phases[i];
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
          {"peak_flops", rank.peak.flops},
          {"peak_bytes", rank.peak.bytes},
          {"optimiser_bytes", rank.update_bytes}};
}

}  // namespace

double RankSteps::step() const {
  return std::accumulate(phases.begin(), phases.end(), 0.0);
}

double RankSteps::own_work() const {
  return step() - phase_of(*this, Phase::waiting) - phase_of(*this, Phase::other);
}

std::string packed(const RankSteps& steps) {
  std::vector<double> numbers;
  for (const double* number : numbers_of(steps)) numbers.push_back(*number);
  return base::as_line(
      nlohmann::json({{"host", steps.host}, {"threads", steps.threads}, {"numbers", numbers}}));
}

RankSteps unpacked(const std::string& text) {
  const auto json = base::parse_json(text);
  RankSteps steps;
  const auto numbers = numbers_of(steps);
  if (!json.is_object() || json.value("numbers", nlohmann::json()).size() != numbers.size())
    throw Error("a rank sent malformed timings", "bench step");
  steps.host = json.at("host").get<std::string>();
  steps.threads = json.at("threads").get<int>();
  for (size_t i = 0; i < numbers.size(); ++i) *numbers[i] = json["numbers"][i].get<double>();
  return steps;
}

Spread spread_over(const std::vector<RankSteps>& ranks,
                   const std::function<double(const RankSteps&)>& number) {
  std::vector<double> numbers;
  for (const auto& rank : ranks) numbers.push_back(number(rank));
  return spread_of(std::move(numbers));
}

Speed arithmetic(const std::vector<RankSteps>& ranks, StepPart part) {
  std::vector<Done> done;
  double peak = 0;
  for (const auto& rank : ranks) {
    done.push_back(done_of(rank, part));
    peak += rank.peak.flops;
  }
  return together(done, peak);
}

Speed update(const std::vector<RankSteps>& ranks) {
  std::vector<Done> done;
  double peak = 0;
  for (const auto& rank : ranks) {
    done.push_back({rank.update_bytes, phase_of(rank, Phase::optimiser)});
    peak += rank.peak.bytes;
  }
  return together(done, peak);
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

std::vector<std::string> notes_of(const StepFound& found) {
  std::vector<RankTime> times;
  for (const auto& rank : found.ranks) times.push_back({rank.host, rank.processors});
  auto notes = busy_nodes(times);
  if (found.crowded) notes.emplace_back("more ranks than cores: they wait for one another's turns");
  if (found.diverged)
    notes.emplace_back("a loss was no number: `lockstep train` with this config ends there");
  const auto& training = found.training;
  if (!found.has_parts()) notes.emplace_back("phases are the GPU's own time; no peak of a GPU is probed");
  if (training.precision != "fp32")
    notes.push_back(format("the peak is of fp32: {} has instructions of its own", training.precision));
  if (training.kernels != "exact")
    notes.emplace_back("counted is what libtorch would do: kernels of our own may need fewer operations");
  if (!found.is_counted())
    notes.emplace_back("no matrix product and no convolution was seen: the arithmetic is not counted");
  if (found.has_parts()) note_peaks(found, notes);
  if (found.ranks.front().update_bytes == 0)
    notes.emplace_back("the optimiser's memory is not counted: it is sharded, and sends parameters around");
  return notes;
}

report::Page page_of(const StepFound& found) {
  report::Page page("lockstep bench step");
  page.section("What was trained");
  page.text(headline(found) + "\n" + steps_line(found));
  page.section("Where the time goes");
  page.table(phase_table(found.ranks));
  if (found.ranks.size() > 1) page.text(slowest_line(found));
  page.bars(phase_bars(found.ranks));
  const auto speeds = speed_table(found);
  page.section("How far from the peak");
  if (speeds.size() > 1) page.table(speeds);
  if (found.has_parts()) page.text(peak_text(found));
  for (const auto& note : notes_of(found)) page.note(base::wrapped("- " + note, 78));
  return page;
}

std::string json_of(const StepFound& found) {
  const auto& training = found.training;
  ordered_json json = {{"schema", 1},
                       {"config", found.asked.command.config},
                       {"program", found.asked.command.program},
                       {"task", training.task},
                       {"model", training.model},
                       {"device", training.device},
                       {"backend", training.backend},
                       {"mode", training.mode},
                       {"precision", training.precision},
                       {"layout", training.layout},
                       {"kernels", training.kernels},
                       {"world", found.ranks.size()},
                       {"nodes", training.nodes},
                       {"warm_up", found.warm_up},
                       {"steps", found.steps},
                       {"samples_a_step", found.samples}};
  train::PhaseSeconds mean{};
  for (size_t i = 0; i < mean.size(); ++i)
    mean[i] = spread_over(found.ranks, [i](const RankSteps& rank) { return rank.phases[i]; }).mean;
  const double step = spread_over(found.ranks, &RankSteps::step).mean;
  json["seconds_a_step"] = step;
  json["samples_per_second"] = found.samples / step;
  json["phases"] = phases_json(mean);
  json["vector_bits"] = vector_bits();
  for (const auto& [part, key, name] : kParts) {
    const auto speed = arithmetic(found.ranks, part);
    json["arithmetic"][key] = {{"flop", speed.a_step}, {"flops", speed.a_second}, {"of_peak", speed.of_peak}};
  }
  const auto memory = update(found.ranks);
  json["optimiser"] = {
      {"bytes", memory.a_step}, {"bytes_a_second", memory.a_second}, {"of_peak", memory.of_peak}};
  json["notes"] = notes_of(found);
  json["ranks"] = ordered_json::array();
  for (size_t i = 0; i < found.ranks.size(); ++i) json["ranks"].push_back(rank_json(found.ranks[i], i));
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep::bench
