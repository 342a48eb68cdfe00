#include "lockstep/bench/step_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "lockstep/base/format.h"
#include "lockstep/base/output.h"
#include "lockstep/base/text.h"
#include "lockstep/bench/report.h"
#include "lockstep/bench/units.h"
#include "lockstep/plot/chart.h"

namespace lockstep::bench {
namespace {

using train::Phase;

constexpr double kUneven = 0.05;  // of own work: less is nobody's fault
constexpr double kUnevenPeak = 0.2;

// Of a step's times: what they are told in.
struct Scale {
  const char* name;
  double factor;
};

Scale scale_of(const std::vector<RankSteps>& ranks) {
  constexpr double kShort = 2e-3;
  return ranks.front().step() < kShort ? Scale{"microseconds", 1e6} : Scale{"milliseconds", 1e3};
}

std::vector<double> each(const std::vector<RankSteps>& ranks, double (*number)(const RankSteps&)) {
  std::vector<double> numbers;
  for (const auto& rank : ranks) numbers.push_back(number(rank));
  return numbers;
}

double step_of(const RankSteps& rank) {
  return rank.step();
}
double own_work_of(const RankSteps& rank) {
  return rank.own_work();
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

std::string percent(double share) {
  return share > 0 ? format("{:.0f} %", 100 * share) : "-";
}

std::string ranks_text(size_t count) {
  return format("{} rank{}", count, count == 1 ? "" : "s");
}

// Who works longest, and shortest.
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

plot::Bars bars_of(const std::vector<RankSteps>& ranks) {
  const auto scale = scale_of(ranks);
  plot::Bars bars{
      .title = "Where a step's time goes", .y_label = scale.name, .names = {}, .parts = {}, .values = {}};
  std::vector<double> mean;
  for (size_t i = 0; i < train::kPhases; ++i) {
    bars.parts.emplace_back(train::name_of(static_cast<Phase>(i)));
    double sum = 0;
    for (const auto& rank : ranks) sum += rank.phases[i];
    mean.push_back(sum / static_cast<double>(ranks.size()) * scale.factor);
  }
  const auto add = [&](const std::string& name, std::vector<double> values) {
    bars.names.push_back(name);
    bars.values.push_back(std::move(values));
  };
  add(ranks.size() == 1 ? "a step" : format("mean of {}", ranks_text(ranks.size())), mean);
  if (!is_uneven(ranks)) return bars;
  const auto [slowest, fastest] = ends(ranks);
  for (const auto& [rank, word] : {std::pair(slowest, "most work"), std::pair(fastest, "least")}) {
    std::vector<double> values;
    for (const double seconds : ranks[rank].phases) values.push_back(seconds * scale.factor);
    add(format("rank {}, {}", rank, word), std::move(values));
  }
  return bars;
}

struct PartName {
  Part part;
  const char *key, *name;
};
constexpr PartName kParts[] = {{Part::forward, "forward", "forward"},
                               {Part::backward, "backward", "backward"},
                               {Part::both, "both", "forward and backward"},
                               {Part::whole_step, "step", "the whole step"}};

// A GPU's own times are not known, so neither are those of its parts.
bool has_parts(const StepFound& found) {
  return found.training.device == "cpu";
}

bool is_counted(const StepFound& found) {
  return arithmetic(found.ranks, Part::whole_step).a_step > 0;
}

// What an update holds may still be there from the step before: memory is not its bound then.
bool is_cached(const StepFound& found) {
  return std::all_of(found.ranks.begin(), found.ranks.end(),
                     [](const RankSteps& rank) { return rank.update_holds < rank.cache; });
}

Table speed_table(const StepFound& found) {
  Table table = {{"arithmetic, memory", "a step", "a second", "of peak"}};
  for (const auto& [part, key, name] : kParts) {
    if (!is_counted(found) || (part != Part::whole_step && !has_parts(found))) continue;
    const auto speed = arithmetic(found.ranks, part);
    table.push_back(
        {name, work_text(speed.a_step), work_text(speed.a_second) + "/s", percent(speed.of_peak)});
  }
  const auto memory = update(found.ranks);
  if (memory.a_step > 0 && has_parts(found))
    table.push_back({"optimiser", decimal_bytes_text(memory.a_step),
                     decimal_bytes_text(memory.a_second) + "/s",
                     is_cached(found) ? "in cache" : percent(memory.of_peak)});
  return table;
}

std::string peak_text(const StepFound& found) {
  if (!has_parts(found)) return "";
  double flops = 0, bytes = 0;
  for (const auto& rank : found.ranks) {
    flops += rank.peak.flops;
    bytes += rank.peak.bytes;
  }
  return format("peak of {} at once: {}/s (fp32 multiply-adds, {}-bit vectors)\n  and {}\n",
                ranks_text(found.ranks.size()), work_text(flops), vector_bits(),
                bytes > 0 ? decimal_bytes_text(bytes) + "/s (a sweep over memory)" : "memory not measured");
}

std::string headline(const StepFound& found) {
  const auto& training = found.training;
  const auto& first = found.ranks.front();
  return format("{}, {}: {} on {} node{}, {} thread{} each, {}\n{}, {}, {}, kernels {}, {}\n", training.task,
                training.model.empty() ? "the task's own model" : training.model,
                ranks_text(found.ranks.size()), training.nodes, training.nodes == 1 ? "" : "s", first.threads,
                first.threads == 1 ? "" : "s", training.device, training.mode, training.precision,
                training.layout, training.kernels, training.backend);
}

std::string steps_line(const StepFound& found) {
  const auto scale = scale_of(found.ranks);
  const auto mean = spread_of(each(found.ranks, step_of)).mean;
  const auto longest = spread_of(each(found.ranks, [](const RankSteps& rank) { return rank.longest; })).most;
  const auto least = spread_of(each(found.ranks, [](const RankSteps& rank) { return rank.least; })).least;
  const auto median = spread_of(each(found.ranks, [](const RankSteps& rank) { return rank.median; })).median;
  return format(
      "{} steps after {} to warm up, {:.0f} samples a step: {:.0f} samples a second\n"
      "a step takes {:.1f} {} (median {:.1f}, {:.1f} to {:.1f})\n",
      found.steps, found.warm_up, found.samples, found.samples / mean, mean * scale.factor, scale.name,
      median * scale.factor, least * scale.factor, longest * scale.factor);
}

std::string slowest_line(const StepFound& found) {
  if (found.ranks.size() == 1) return "";
  const auto scale = scale_of(found.ranks);
  const auto [slowest, fastest] = ends(found.ranks);
  const auto& rank = found.ranks[slowest];
  return format("most work of its own: rank {} on {}, {:.1f} of {:.1f} {} (mean {:.1f})\n", slowest,
                base::printable(rank.host), rank.own_work() * scale.factor, rank.step() * scale.factor,
                scale.name, spread_of(each(found.ranks, own_work_of)).mean * scale.factor);
}

void note_peaks(const StepFound& found, std::vector<std::string>& notes) {
  const auto peaks = spread_of(each(found.ranks, [](const RankSteps& rank) { return rank.peak.flops; }));
  if (peaks.least < (1 - kUnevenPeak) * peaks.most)
    notes.push_back(format("the ranks' peaks differ: {}/s to {}/s (rank {})", work_text(peaks.least),
                           work_text(peaks.most), peaks.at_most));
  if (found.missing > kUnevenPeak)
    notes.push_back(format("the machine was uneven: {} of its peak was not there before or after the steps",
                           percent(found.missing)));
  if (arithmetic(found.ranks, Part::both).of_peak > 1)
    notes.emplace_back("above 100 %: libtorch has wider vectors than the probe, or needs fewer operations");
}

// For a terminal, at spaces.
std::string wrapped(std::string text) {
  constexpr size_t kColumns = 78;
  for (size_t begin = 0; text.size() - begin > kColumns;) {
    const auto space = text.rfind(' ', begin + kColumns);
    if (space == std::string::npos || space <= begin + 2) break;
    text.replace(space, 1, "\n  ");
    begin = space + 1;
  }
  return text + "\n";
}

using nlohmann::ordered_json;

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
          {"peak_flops", rank.peak.flops},
          {"peak_bytes", rank.peak.bytes},
          {"optimiser_bytes", rank.update_bytes}};
}

}  // namespace

Table phase_table(const std::vector<RankSteps>& ranks) {
  const bool several = ranks.size() > 1;
  const auto scale = scale_of(ranks);
  Table table = {{format("{} a step", scale.name), "mean", "%"}};
  if (several) table[0].insert(table[0].end(), {"min", "median", "max", "most on"});
  const auto whole = spread_of(each(ranks, step_of));
  for (size_t i = 0; i < train::kPhases; ++i) {
    std::vector<double> numbers;
    for (const auto& rank : ranks) numbers.push_back(rank.phases[i]);
    table.push_back(row_of(train::name_of(static_cast<Phase>(i)), spread_of(std::move(numbers)), whole.mean,
                           scale.factor, several));
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
  if (!has_parts(found))
    notes.emplace_back(
        "times are the host's: it hands work to the GPU and goes on, and what the GPU takes shows where the "
        "host waits for it; no peak of a GPU is probed");
  if (training.precision != "fp32")
    notes.push_back(format("the peak is of fp32: {} has instructions of its own", training.precision));
  if (training.kernels != "exact")
    notes.emplace_back("counted is what libtorch would do: kernels of our own may need fewer operations");
  if (!is_counted(found))
    notes.emplace_back("no matrix product and no convolution was seen: the arithmetic is not counted");
  if (has_parts(found)) note_peaks(found, notes);
  if (found.ranks.front().update_bytes == 0)
    notes.emplace_back("the optimiser's memory is not counted: it is sharded, and sends parameters around");
  return notes;
}

std::string text_of(const StepFound& found) {
  auto text = headline(found) + steps_line(found) + "\n" + aligned(phase_table(found.ranks)) +
              slowest_line(found) + "\n" + plot::text(bars_of(found.ranks)) + "\n";
  const auto speeds = speed_table(found);
  if (speeds.size() > 1) text += aligned(speeds);
  text += peak_text(found);
  for (const auto& note : notes_of(found)) text += wrapped("- " + note);
  return text;
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
  for (size_t i = 0; i < train::kPhases; ++i) {
    for (const auto& rank : found.ranks) mean[i] += rank.phases[i] / static_cast<double>(found.ranks.size());
  }
  const double step = spread_of(each(found.ranks, step_of)).mean;
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

void tell(const StepFound& found) {
  output::print(found.asked.json ? json_of(found) : text_of(found));
  const auto bars = plot::svg(bars_of(found.ranks));
  std::string notes;
  for (const auto& note : notes_of(found)) notes += "<p>" + plot::escaped(note) + "</p>";
  const auto said = headline(found) + steps_line(found);
  write_out(found.asked.out, "lockstep bench step",
            {{"What was trained", "<p>" + plot::escaped(said) + "</p>"},
             {"Where the time goes", bars + plot::table(phase_table(found.ranks)) + "<p>" +
                                         plot::escaped(slowest_line(found)) + "</p>"},
             {"How far from the peak",
              plot::table(speed_table(found)) + "<p>" + plot::escaped(peak_text(found)) + "</p>" + notes}},
            bars);
}

}  // namespace lockstep::bench
