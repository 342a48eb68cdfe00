#include "tools/bench/step_report.h"

#include <algorithm>

#include "lockstep/base/files/output.h"
#include "lockstep/base/format.h"
#include "lockstep/base/text.h"
#include "tools/bench/report.h"
#include "tools/bench/units.h"
#include "tools/plot/pictures.h"

namespace lockstep::bench {
namespace {

using train::Phase;

constexpr double kUneven = 0.05;  // of own work: less is nobody's fault

// Of a step's times: what they are told in.
struct Scale {
  const char* name;
  double factor;
};

Scale scale_of(const std::vector<RankSteps>& ranks) {
  constexpr double kShort = 2e-3;
  return ranks.front().step() < kShort ? Scale{"microseconds", 1e6} : Scale{"milliseconds", 1e3};
}

std::vector<std::string> row_of(const std::string& name, const RankSpread& spread, double whole,
                                double factor, bool several) {
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

plot::Bars phase_bars(const std::vector<RankSteps>& ranks) {
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

// What an update holds may still be there from the step before: memory is not its bound then.
bool is_cached(const StepFound& found) {
  return std::all_of(found.ranks.begin(), found.ranks.end(),
                     [](const RankSteps& rank) { return rank.update_holds < rank.cache; });
}

Table speed_table(const StepFound& found) {
  Table table = {{"arithmetic, memory", "a step", "a second", "of peak"}};
  for (const auto& [part, key, name] : kParts) {
    if (!found.is_counted() || (part != StepPart::whole_step && !found.has_parts())) continue;
    const auto speed = arithmetic(found.ranks, part);
    table.push_back(
        {name, work_text(speed.a_step), work_text(speed.a_second) + "/s", percent_text(speed.of_peak)});
  }
  const auto memory = update(found.ranks);
  if (memory.a_step > 0 && found.has_parts())
    table.push_back({"optimiser", decimal_bytes_text(memory.a_step),
                     decimal_bytes_text(memory.a_second) + "/s",
                     is_cached(found) ? "in cache" : percent_text(memory.of_peak)});
  return table;
}

std::string peak_text(const StepFound& found) {
  if (!found.has_parts()) return "";
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
  const auto mean = spread_over(found.ranks, &RankSteps::step).mean;
  const auto longest = spread_over(found.ranks, &RankSteps::longest).most;
  const auto least = spread_over(found.ranks, &RankSteps::least).least;
  const auto median = spread_over(found.ranks, &RankSteps::median).median;
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
                scale.name, spread_over(found.ranks, &RankSteps::own_work).mean * scale.factor);
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

}  // namespace

Table phase_table(const std::vector<RankSteps>& ranks) {
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

std::string text_of(const StepFound& found) {
  auto text = headline(found) + steps_line(found) + "\n" + aligned(phase_table(found.ranks)) +
              slowest_line(found) + "\n" + plot::text(phase_bars(found.ranks)) + "\n";
  const auto speeds = speed_table(found);
  if (speeds.size() > 1) text += aligned(speeds);
  text += peak_text(found);
  for (const auto& note : notes_of(found)) text += wrapped("- " + note);
  return text;
}

void tell(const StepFound& found) {
  output::print(found.asked.json ? json_of(found) : text_of(found));
  const auto bars = phase_bars(found.ranks);
  std::string notes;
  for (const auto& note : notes_of(found)) notes += "<p>" + plot::escaped(note) + "</p>";
  const auto said = headline(found) + steps_line(found);
  write_out(
      found.asked.out, "lockstep bench step",
      {{"What was trained", "<p>" + plot::escaped(said) + "</p>"},
       {"Where the time goes", plot::pictures({plot::drawn(bars)}) + plot::table(phase_table(found.ranks)) +
                                   "<p>" + plot::escaped(slowest_line(found)) + "</p>"},
       {"How far from the peak",
        plot::table(speed_table(found)) + "<p>" + plot::escaped(peak_text(found)) + "</p>" + notes}},
      plot::svg(bars));
}

}  // namespace lockstep::bench
